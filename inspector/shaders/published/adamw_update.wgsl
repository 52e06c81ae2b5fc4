// AdamW as it was published: one thread an element. Kept to measure the vectorised form against.

@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> size: u32;
@group(0) @binding(6) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adamw_update(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if i >= size {
        return;
    }
    let grad = grad_stats[1] * select(0.0, g[i], is_finite(g[i]));
    if PRECISE {
        // The four lanes of what kernels share do not mix.
        let to = adam(vec4(w[i]), vec4(g[i]), vec4(m[i]), vec4(v[i]), grad_stats[1], hp[0], hp[1], bias, i);
        w[i] = to.w.x;
        m[i] = to.m.x;
        v[i] = to.v.x;
        g[i] = 0.0;
        return;
    }
    let m1 = hp[0].y * m[i] + (1.0 - hp[0].y) * grad;
    let v1 = hp[0].z * v[i] + (1.0 - hp[0].z) * (grad * grad);
    let m_hat = m1 / max(1.0 - bias.x, 1e-12);
    let v_hat = v1 / max(1.0 - bias.y, 1e-12);
    let update = hp[0].x * (m_hat / (sqrt(v_hat) + bias.z) + hp[0].w * w[i]);
    if is_finite(update) {
        w[i] = w[i] - update;
    }
    m[i] = m1;
    v[i] = v1;
    g[i] = 0.0;
}
