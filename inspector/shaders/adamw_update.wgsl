// AdamW with the clip scale applied to the gradient and the gradient set to zero, four elements a thread.

@group(0) @binding(0) var<storage, read_write> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> size: u32;
@group(0) @binding(6) var<uniform> hp: vec4<f32>;    // lr, beta1, beta2, weight decay
@group(0) @binding(7) var<uniform> bias: vec4<f32>;  // beta1^t, beta2^t, eps, -
                                                     // precise: 1/(1-beta1^t), 1/(1-beta2^t), eps, 1-beta2

override PRECISE: bool = false;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adamw_update(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i >= size {
        return;
    }
    let w0 = w[i];
    let g0 = g[i];
    let m0 = m[i];
    let v0 = v[i];

    let grad = grad_stats[1] * select(vec4(0.0), g0, is_finite4(g0));
    let m1 = hp.y * m0 + (1.0 - hp.y) * grad;
    var v1: vec4<f32>;
    var m_hat: vec4<f32>;
    var v_hat: vec4<f32>;
    if PRECISE {
        v1 = hp.z * v0 + bias.w * (grad * grad);
        m_hat = m1 * bias.x;
        v_hat = v1 * bias.y;
    } else {
        v1 = hp.z * v0 + (1.0 - hp.z) * (grad * grad);
        m_hat = m1 / max(1.0 - bias.x, 1e-12);
        v_hat = v1 / max(1.0 - bias.y, 1e-12);
    }
    let update = hp.x * (m_hat / (sqrt(v_hat) + bias.z) + hp.w * w0);

    // What lies beyond the size belongs to somebody else, or is padding that has to stay zero.
    let mine = lanes_below(4u * i, size);
    w[i] = select(w0, w0 - update, mine & is_finite4(update));
    g[i] = select(g0, vec4(0.0), mine);
    m[i] = select(m0, m1, mine);
    v[i] = select(v0, v1, mine);
}
