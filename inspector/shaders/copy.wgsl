// A plain copy, whose bandwidth is what the other kernels are measured against.

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn copy(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if i < arrayLength(&source) {
        target_[i] = source[i];
    }
}
