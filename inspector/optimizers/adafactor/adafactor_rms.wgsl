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

fn gradient(at: u32, here: bool, clip_scale: f32) -> f32 {
    let used = here && at < size;
    return select(0.0, clipped(g[select(0u, at, used)], clip_scale), used);
}

fn column_root(at: u32, here: bool) -> f32 {
    return select(0.0, 1.0 / sqrt(col_var[select(0u, at, here)]), here);
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
    let column = tile.column + thread % 64u;
    let there = vec4(column) + vec4(0u, 64u, 128u, 192u) < vec4(matrix.columns);
    let columns_at = matrix.column_at + tile.slice * matrix.columns + column;
    let roots = vec4(
        column_root(columns_at, there.x),
        column_root(columns_at + 64u, there.y),
        column_root(columns_at + 128u, there.z),
        column_root(columns_at + 192u, there.w),
    );
    let rows_at = matrix.row_at + tile.slice * matrix.rows + tile.row;
    var sum = 0.0;
    for (var row = thread / 64u; row < rows; row += 4u) {
        let at = first + (tile.row + row) * matrix.columns + column;
        let u = vec4(
            gradient(at, there.x, clip_scale),
            gradient(at + 64u, there.y, clip_scale),
            gradient(at + 128u, there.z, clip_scale),
            gradient(at + 192u, there.w, clip_scale),
        ) * (1.0 / sqrt(row_var[rows_at + row])) * roots;
        sum += dot(u, u);
    }
    let whole = total(thread, sum);
    if thread == 0u {
        square_parts[tile.part_at] = whole;
    }
}
