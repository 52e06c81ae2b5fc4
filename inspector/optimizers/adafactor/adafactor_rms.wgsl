// Sums over each tile of the squares of g' / sqrt(row_var * col_var): of the update but for the mean of row_var, which
// adafactor_clip puts in.

@group(0) @binding(0) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> row_var: array<f32>;
@group(0) @binding(2) var<storage, read> col_var: array<f32>;
@group(0) @binding(3) var<storage, read_write> square_parts: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<storage, read> tiles: array<Tile>;
@group(0) @binding(6) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(7) var<uniform> size: u32;

// Four columns of one row where rows begin at any element.
fn scattered(at: u32, here: vec4<bool>) -> vec4<f32> {
    let i = select(vec4(0u), vec4(at) + FOUR, here);
    return vec4(g[i.x / 4u][i.x % 4u], g[i.y / 4u][i.y % 4u], g[i.z / 4u][i.z % 4u], g[i.w / 4u][i.w % 4u]);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_rms(
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
    let column = tile.column + 4u * (thread % THREADS_ACROSS);
    let there = vec4(column) + FOUR < vec4(matrix.columns);
    let whole_fours = is_whole(matrix);
    let columns_at = matrix.column_at + tile.slice * matrix.columns + column;
    let at_columns = select(vec4(matrix.column_at), vec4(columns_at) + FOUR, there);
    let roots = 1.0 / sqrt(vec4(
        col_var[at_columns.x], col_var[at_columns.y], col_var[at_columns.z], col_var[at_columns.w],
    ));
    let rows_at = matrix.row_at + tile.slice * matrix.rows + tile.row;
    var sum = 0.0;
    for (var row = thread / THREADS_ACROSS; row < rows; row += 8u) {
        // Two rows on their way at once.
        let at = first + (tile.row + row) * matrix.columns + column;
        let next = at + 4u * matrix.columns;
        let last = row + 4u < rows;
        let here = there & (vec4(at) + FOUR < vec4(size));
        let here_too = there & (vec4(next) + FOUR < vec4(size)) & vec4(last);
        var x: vec4<f32>;
        var y: vec4<f32>;
        if whole_fours {
            x = g[select(0u, at / 4u, here.x)];
            y = g[select(0u, next / 4u, here_too.x)];
        } else {
            x = scattered(at, here);
            y = scattered(next, here_too);
        }
        x = clipped4(select(vec4(0.0), x, here), clip_scale);
        y = clipped4(select(vec4(0.0), y, here_too), clip_scale);
        let u = x * (1.0 / sqrt(row_var[rows_at + row])) * roots;
        let v = y * (1.0 / sqrt(row_var[rows_at + select(row, row + 4u, last)])) * roots;
        sum += dot(u, u) + dot(v, v);
    }
    let whole = total(thread, sum);
    if thread == 0u {
        square_parts[tile.part_at] = whole;
    }
}
