// The values of m or v from their 8-bit codes, for looking at them.

@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> values: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> what: vec2<u32>;  // elements; 0 for m, 1 for v

@compute @workgroup_size(WORKGROUP_SIZE)
fn decode_8bit(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    make_tables(local);
    let i = flat_id(gid, groups);
    if 4u * i >= what.x {
        return;
    }
    let scale = scales[i / THREADS_A_BLOCK];
    var x: vec4<f32>;
    if what.y == 0u {
        x = decode_m(codes[i], scale);
    } else {
        x = decode_v(codes[i], scale);
    }
    values[i] = select(values[i], x, lanes_below(4u * i, what.x));
}
