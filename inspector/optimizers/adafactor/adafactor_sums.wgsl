// Sums of squared gradients over the rows and over the columns of each tile, up to 64 by 256: a thread has four columns
// of every fourth row, and 32 rows are a turn.

@group(0) @binding(0) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> row_parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> column_parts: array<f32>;
@group(0) @binding(3) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(4) var<storage, read> tiles: array<Tile>;
@group(0) @binding(5) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(6) var<uniform> size: u32;

const TURN = 32u;

// Each row of a turn by 64 threads; one more, so that a column does not lie in one bank.
var<workgroup> of_rows: array<f32, 2080>;
var<workgroup> of_eights: array<f32, 256>;
var<workgroup> of_columns: array<vec4<f32>, 256>;

fn gradients(at: u32, here: vec4<bool>, whole: bool, clip_scale: f32) -> vec4<f32> {
    if whole {
        return clipped4(select(vec4(0.0), g[select(0u, at / 4u, here.x)], here), clip_scale);
    }
    let i = select(vec4(0u), vec4(at) + FOUR, here);
    let each = vec4(g[i.x / 4u][i.x % 4u], g[i.y / 4u][i.y % 4u], g[i.z / 4u][i.z % 4u], g[i.w / 4u][i.w % 4u]);
    return clipped4(select(vec4(0.0), each, here), clip_scale);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_sums(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group_number(group, groups);
    if number >= arrayLength(&tiles) {
        return;
    }
    let tile = tiles[number];
    let matrix = matrices[tile.matrix];
    let clip_scale = grad_stats[1];
    let first = matrix.start + tile.slice * matrix.rows * matrix.columns;
    let rows = min(matrix.tile_rows, matrix.rows - tile.row);
    let across = thread % THREADS_ACROSS;
    let down = thread / THREADS_ACROSS;
    let column = tile.column + 4u * across;
    let there = vec4(column) + FOUR < vec4(matrix.columns);
    let whole_fours = is_whole(matrix);
    var columns = vec4(0.0);
    for (var turn = 0u; turn < rows; turn += TURN) {
        for (var k = 0u; k < 8u; k++) {
            let row = down + 4u * k;
            let at = first + (tile.row + turn + row) * matrix.columns + column;
            let here = there & (vec4(at) + FOUR < vec4(size)) & vec4(turn + row < rows);
            let x = gradients(at, here, whole_fours, clip_scale);
            let squares = x * x;
            columns += squares;
            of_rows[row * 65u + across] = (squares.x + squares.y) + (squares.z + squares.w);
        }
        workgroupBarrier();
        // Eight threads a row, eight sums each.
        var sum = 0.0;
        let from_ = (thread / 8u) * 65u + (thread % 8u) * 8u;
        for (var k = 0u; k < 8u; k++) {
            sum += of_rows[from_ + k];
        }
        of_eights[thread] = sum;
        workgroupBarrier();
        if thread < TURN && turn + thread < rows {
            var whole = 0.0;
            for (var k = 0u; k < 8u; k++) {
                whole += of_eights[thread * 8u + k];
            }
            row_parts[tile.rows_at + turn + thread] = whole;
        }
    }
    of_columns[thread] = columns;
    workgroupBarrier();
    // A thread a column.
    var whole = 0.0;
    for (var k = 0u; k < 4u; k++) {
        whole += of_columns[k * THREADS_ACROSS + thread / 4u][thread % 4u];
    }
    if tile.column + thread < matrix.columns {
        column_parts[tile.columns_at + thread] = whole;
    }
}
