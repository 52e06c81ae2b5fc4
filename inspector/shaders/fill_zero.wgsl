// Gradient zeroing as a pass of its own.

@group(0) @binding(0) var<storage, read_write> data: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> n: u32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn fill_zero(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i < n {
        data[i] = select(data[i], vec4(0.0), lanes_below(4u * i, n));
    }
}
