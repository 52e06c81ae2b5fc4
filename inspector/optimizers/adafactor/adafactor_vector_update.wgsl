// The update of vectors, 4096 elements a workgroup: decay decoupled, the gradient set to zero.
// Not FUSED: the gradient comes clipped and is left to a pass of its own. hp: lr, -, -, weight decay.

@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read> variance: array<f32>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<storage, read> tiles: array<Tile>;
@group(0) @binding(6) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(7) var<uniform> size: u32;
@group(0) @binding(8) var<uniform> hp: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_vector_update(
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
    let factor = scales[matrix.scale_at + 2u];
    let decay = select(0.0, hp.w, matrix.decays != 0u);
    let last = min(tile.column + VECTOR_TILE, matrix.columns);
    for (var k = tile.column + thread; k < last; k += WORKGROUP_SIZE) {
        let i = matrix.start + k;
        if i < size {
            let w0 = w[i];
            let u = clipped(g[i], grad_stats[1]) / sqrt(variance[matrix.column_at + k]) * factor;
            let change = hp.x * (u + decay * w0);
            w[i] = select(w0, w0 - change, is_finite(change));
            if FUSED {
                g[i] = 0.0;
            }
        }
    }
}
