// Gradient clipping as a pass of its own: finite gradients times the clip scale, others 0.

@group(0) @binding(0) var<storage, read_write> data: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn scale(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i >= n {
        return;
    }
    let x = data[i];
    let scaled = grad_stats[1] * select(vec4(0.0), x, is_finite4(x));
    data[i] = select(x, scaled, lanes_below(4u * i, n));
}
