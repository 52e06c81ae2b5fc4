// The second moment of vectors, element by element, and sums over each tile of the squares of g' / sqrt(variance).
// bias: 1-beta2_t, beta2_t, eps1, d.

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read_write> variance: array<f32>;
@group(0) @binding(2) var<storage, read_write> square_parts: array<f32>;
@group(0) @binding(3) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(4) var<storage, read> tiles: array<Tile>;
@group(0) @binding(5) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(6) var<uniform> size: u32;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_vector_moment(
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
    let last = min(tile.column + VECTOR_TILE, matrix.columns);
    var sum = 0.0;
    for (var i = tile.column + thread; i < last; i += WORKGROUP_SIZE) {
        if matrix.start + i < size {
            let x = clipped(g[matrix.start + i], grad_stats[1]);
            let v = bias.y * variance[matrix.column_at + i] + bias.x * (x * x + bias.z);
            variance[matrix.column_at + i] = v;
            let u = x / sqrt(v);
            sum += u * u;
        }
    }
    let whole = total(thread, sum);
    if thread == 0u {
        square_parts[tile.part_at] = whole;
    }
}
