// Half-precision mirror of a param as a pass of its own.

@group(0) @binding(0) var<storage, read> data: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec2<u32>>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn cast_f32_to_f16(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i < n {
        result[i] = half_bits4(select(vec4(0.0), data[i], lanes_below(4u * i, n)));
    }
}
