// The weights of matrices by what the roots made of m_hat, m as that was made with it, and the gradient
// set to zero; four elements a thread.

@group(0) @binding(0) var<storage, read_write> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> size: u32;
@group(0) @binding(6) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_update(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let flat = flat_id(gid, groups);
    if 4u * flat >= size {
        return;
    }
    let i = from_the_end(flat, size);
    let w0 = w[i];
    let g0 = g[i];
    let m0 = m[i];
    let to = updated(w0, g0, m0, v[i], grad_stats[1], hp[0], hp[1], bias, 4u * i);

    // What lies beyond the size belongs to somebody else, or is padding that has to stay zero.
    let mine = lanes_below(4u * i, size);
    w[i] = select(w0, to.w, mine);
    if FUSED {
        g[i] = select(g0, vec4(0.0), mine);
    }
    m[i] = select(m0, to.m, mine);
}
