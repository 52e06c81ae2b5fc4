// The Nesterov direction of hidden matrices, put in the place of v; m stays as it is until the update.

@group(0) @binding(0) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> m: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(4) var<uniform> size: u32;
@group(0) @binding(5) var<uniform> hp: array<vec4<f32>, 2>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn muon_direction(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i >= size {
        return;
    }
    let to = updated(vec4(0.0), g[i], m[i], vec4(0.0), grad_stats[1], hp[0], hp[1], vec4(0.0), 4u * i);
    v[i] = select(v[i], to.m_hat, lanes_below(4u * i, size));
}
