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
// Of a row in workgroup memory: one more than there are, so that a column does not lie in one bank.
const PITCH = 65u;

// Each row of a turn by 64 threads.
var<workgroup> of_rows: array<f32, 2080>;
var<workgroup> of_eights: array<f32, 256>;
var<workgroup> of_columns: array<vec4<f32>, 256>;

// Four columns of one row where rows begin at any element.
fn scattered(at: u32, here: vec4<bool>) -> vec4<f32> {
    let i = select(vec4(0u), vec4(at) + FOUR, here);
    return vec4(g[i.x / 4u][i.x % 4u], g[i.y / 4u][i.y % 4u], g[i.z / 4u][i.z % 4u], g[i.w / 4u][i.w % 4u]);
}

fn squares(g4: vec4<f32>, here: vec4<bool>, clip_scale: f32) -> vec4<f32> {
    let x = clipped4(select(vec4(0.0), g4, here), clip_scale);
    return x * x;
}

fn is_here(at: u32, inside: bool, there: vec4<bool>) -> vec4<bool> {
    return there & (vec4(at) + FOUR < vec4(size)) & vec4(inside);
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
        let row = turn + down;
        let at = first + (tile.row + row) * matrix.columns + column;
        let step = 4u * matrix.columns;
        let h0 = is_here(at, row < rows, there);
        let h1 = is_here(at + step, row + 4u < rows, there);
        let h2 = is_here(at + 2u * step, row + 8u < rows, there);
        let h3 = is_here(at + 3u * step, row + 12u < rows, there);
        let h4 = is_here(at + 4u * step, row + 16u < rows, there);
        let h5 = is_here(at + 5u * step, row + 20u < rows, there);
        let h6 = is_here(at + 6u * step, row + 24u < rows, there);
        let h7 = is_here(at + 7u * step, row + 28u < rows, there);
        // All eight rows on their way before the first is used: written out, for compilers leave loops as they are.
        var x0: vec4<f32>;
        var x1: vec4<f32>;
        var x2: vec4<f32>;
        var x3: vec4<f32>;
        var x4: vec4<f32>;
        var x5: vec4<f32>;
        var x6: vec4<f32>;
        var x7: vec4<f32>;
        if whole_fours {
            x0 = g[select(0u, at / 4u, h0.x)];
            x1 = g[select(0u, (at + step) / 4u, h1.x)];
            x2 = g[select(0u, (at + 2u * step) / 4u, h2.x)];
            x3 = g[select(0u, (at + 3u * step) / 4u, h3.x)];
            x4 = g[select(0u, (at + 4u * step) / 4u, h4.x)];
            x5 = g[select(0u, (at + 5u * step) / 4u, h5.x)];
            x6 = g[select(0u, (at + 6u * step) / 4u, h6.x)];
            x7 = g[select(0u, (at + 7u * step) / 4u, h7.x)];
        } else {
            x0 = scattered(at, h0);
            x1 = scattered(at + step, h1);
            x2 = scattered(at + 2u * step, h2);
            x3 = scattered(at + 3u * step, h3);
            x4 = scattered(at + 4u * step, h4);
            x5 = scattered(at + 5u * step, h5);
            x6 = scattered(at + 6u * step, h6);
            x7 = scattered(at + 7u * step, h7);
        }
        x0 = squares(x0, h0, clip_scale);
        x1 = squares(x1, h1, clip_scale);
        x2 = squares(x2, h2, clip_scale);
        x3 = squares(x3, h3, clip_scale);
        x4 = squares(x4, h4, clip_scale);
        x5 = squares(x5, h5, clip_scale);
        x6 = squares(x6, h6, clip_scale);
        x7 = squares(x7, h7, clip_scale);
        columns += ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));
        let place = down * PITCH + across;
        of_rows[place] = dot(x0, vec4(1.0));
        of_rows[place + 4u * PITCH] = dot(x1, vec4(1.0));
        of_rows[place + 8u * PITCH] = dot(x2, vec4(1.0));
        of_rows[place + 12u * PITCH] = dot(x3, vec4(1.0));
        of_rows[place + 16u * PITCH] = dot(x4, vec4(1.0));
        of_rows[place + 20u * PITCH] = dot(x5, vec4(1.0));
        of_rows[place + 24u * PITCH] = dot(x6, vec4(1.0));
        of_rows[place + 28u * PITCH] = dot(x7, vec4(1.0));
        workgroupBarrier();
        // Eight threads a row, eight sums each.
        let i = (thread / 8u) * PITCH + thread % 8u;
        of_eights[thread] = ((of_rows[i] + of_rows[i + 8u]) + (of_rows[i + 16u] + of_rows[i + 24u]))
            + ((of_rows[i + 32u] + of_rows[i + 40u]) + (of_rows[i + 48u] + of_rows[i + 56u]));
        workgroupBarrier();
        if thread < TURN && turn + thread < rows {
            let j = thread * 8u;
            row_parts[tile.rows_at + turn + thread] =
                ((of_eights[j] + of_eights[j + 1u]) + (of_eights[j + 2u] + of_eights[j + 3u]))
                + ((of_eights[j + 4u] + of_eights[j + 5u]) + (of_eights[j + 6u] + of_eights[j + 7u]));
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
