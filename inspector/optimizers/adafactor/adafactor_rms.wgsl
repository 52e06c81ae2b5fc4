// Sums over each tile of the squares of g' / sqrt(row_var * col_var): of the update but for the mean of row_var, which
// adafactor_clip puts in.

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> row_var: array<f32>;
@group(0) @binding(2) var<storage, read> col_var: array<f32>;
@group(0) @binding(3) var<storage, read_write> square_parts: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<storage, read> tiles: array<Tile>;
@group(0) @binding(6) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(7) var<uniform> size: u32;

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
    let column = tile.column + thread % 64u;
    let there = vec4(column) + ACROSS < vec4(matrix.columns);
    let columns_at = matrix.column_at + tile.slice * matrix.columns + column;
    let at_columns = select(vec4(matrix.column_at), vec4(columns_at) + ACROSS, there);
    let roots = 1.0 / sqrt(vec4(
        col_var[at_columns.x], col_var[at_columns.y], col_var[at_columns.z], col_var[at_columns.w],
    ));
    let rows_at = matrix.row_at + tile.slice * matrix.rows + tile.row;
    var sum = 0.0;
    for (var row = thread / 64u; row < rows; row += 4u) {
        let at = vec4(first + (tile.row + row) * matrix.columns + column) + ACROSS;
        let here = there & (at < vec4(size));
        let i = select(vec4(0u), at, here);
        let g0 = select(vec4(0.0), vec4(g[i.x], g[i.y], g[i.z], g[i.w]), here);
        let u = clipped4(g0, clip_scale) * (1.0 / sqrt(row_var[rows_at + row])) * roots;
        sum += dot(u, u);
    }
    let whole = total(thread, sum);
    if thread == 0u {
        square_parts[tile.part_at] = whole;
    }
}
