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
    let there = vec4(column) + ACROSS < vec4(matrix.columns);
    let at_columns = select(vec4(matrix.column_at), vec4(columns_at) + ACROSS, there);
    let roots = 1.0 / sqrt(vec4(
        col_var[at_columns.x], col_var[at_columns.y], col_var[at_columns.z], col_var[at_columns.w],
    ));
    for (var row = thread / 64u; row < rows; row += 4u) {
        let at = vec4(first + (tile.row + row) * matrix.columns + column) + ACROSS;
        let here = there & (at < vec4(size));
        let i = select(vec4(0u), at, here);
        // All that is read before anything is written: none waits for another.
        let w0 = vec4(w[i.x], w[i.y], w[i.z], w[i.w]);
        let g0 = vec4(g[i.x], g[i.y], g[i.z], g[i.w]);
        let root = 1.0 / sqrt(row_var[rows_at + row]);
        let change = hp.x * (clipped4(g0, clip_scale) * root * roots * factor + decay * w0);
        let w1 = select(w0, w0 - change, is_finite4(change));
        store(i.x, w1.x, here.x);
        store(i.y, w1.y, here.y);
        store(i.z, w1.z, here.z);
        store(i.w, w1.w, here.w);
    }
}

fn store(i: u32, value: f32, here: bool) {
    if here {
        w[i] = value;
        if FUSED {
            g[i] = 0.0;
        }
    }
}
