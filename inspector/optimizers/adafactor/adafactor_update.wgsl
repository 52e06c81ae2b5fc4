// The update of matrices, a tile a workgroup: decay decoupled, the gradient set to zero.
// Not FUSED: the gradient comes clipped and is left to a pass of its own. hp: lr, -, -, weight decay.

@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read> row_var: array<f32>;
@group(0) @binding(3) var<storage, read> col_var: array<f32>;
@group(0) @binding(4) var<storage, read> scales: array<f32>;
@group(0) @binding(5) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(6) var<storage, read> tiles: array<Tile>;
@group(0) @binding(7) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(8) var<uniform> size: u32;
@group(0) @binding(9) var<uniform> hp: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_update(
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
    let factor = scales[matrix.scale_at + 2u + tile.slice];
    let decay = select(0.0, hp.w, matrix.decays != 0u);
    let first = matrix.start + tile.slice * matrix.rows * matrix.columns;
    let rows = min(matrix.tile_rows, matrix.rows - tile.row);
    let column = tile.column + thread % 64u;
    let columns_at = matrix.column_at + tile.slice * matrix.columns + column;
    let rows_at = matrix.row_at + tile.slice * matrix.rows + tile.row;
    var there: array<bool, 4>;
    var roots: array<f32, 4>;
    for (var k = 0u; k < 4u; k++) {
        there[k] = column + 64u * k < matrix.columns;
        roots[k] = 1.0 / sqrt(col_var[columns_at + select(0u, 64u * k, there[k])]);
    }
    for (var row = thread / 64u; row < rows; row += 4u) {
        let root = 1.0 / sqrt(row_var[rows_at + row]);
        let at = first + (tile.row + row) * matrix.columns + column;
        for (var k = 0u; k < 4u; k++) {
            let i = at + 64u * k;
            if there[k] && i < size {
                let w0 = w[i];
                let u = clipped(g[i], clip_scale) * root * roots[k] * factor;
                let change = hp.x * (u + decay * w0);
                w[i] = select(w0, w0 - change, is_finite(change));
                if FUSED {
                    g[i] = 0.0;
                }
            }
        }
    }
}
