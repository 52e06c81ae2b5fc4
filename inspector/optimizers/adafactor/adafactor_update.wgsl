// The update of matrices, a tile a workgroup: decay decoupled, the gradient set to zero.
// Not FUSED: the gradient comes clipped and is left to a pass of its own. hp: lr, -, -, weight decay.

@group(0) @binding(0) var<storage, read_write> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> g: array<vec4<f32>>;
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
    let column = tile.column + 4u * (thread % THREADS_ACROSS);
    let columns_at = matrix.column_at + tile.slice * matrix.columns + column;
    let rows_at = matrix.row_at + tile.slice * matrix.rows + tile.row;
    let there = vec4(column) + FOUR < vec4(matrix.columns);
    let whole_fours = is_whole(matrix);
    let at_columns = select(vec4(matrix.column_at), vec4(columns_at) + FOUR, there);
    let roots = 1.0 / sqrt(vec4(
        col_var[at_columns.x], col_var[at_columns.y], col_var[at_columns.z], col_var[at_columns.w],
    ));
    for (var row = thread / THREADS_ACROSS; row < rows; row += 4u) {
        let at = first + (tile.row + row) * matrix.columns + column;
        let here = there & (vec4(at) + FOUR < vec4(size));
        let scale = 1.0 / sqrt(row_var[rows_at + row]) * roots * factor;
        if whole_fours {
            if here.x {
                let i = at / 4u;
                let w0 = w[i];
                w[i] = moved(w0, clipped4(g[i], clip_scale), scale, decay);
                if FUSED {
                    g[i] = vec4(0.0);
                }
            }
        } else {
            for (var k = 0u; k < 4u; k++) {
                if here[k] {
                    let i = (at + k) / 4u;
                    let lane = (at + k) % 4u;
                    let w0 = vec4(w[i][lane]);
                    w[i][lane] = moved(w0, vec4(clipped(g[i][lane], clip_scale)), vec4(scale[k]), decay).x;
                    if FUSED {
                        g[i][lane] = 0.0;
                    }
                }
            }
        }
    }
}

// w after an update of g' times `scale`, where that is finite.
fn moved(w0: vec4<f32>, x: vec4<f32>, scale: vec4<f32>, decay: f32) -> vec4<f32> {
    let change = hp.x * (x * scale + decay * w0);
    return select(w0, w0 - change, is_finite4(change));
}
