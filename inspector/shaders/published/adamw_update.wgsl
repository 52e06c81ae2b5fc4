// AdamW as it was published: one thread an element. Kept to measure the vectorised form against.

@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> size: u32;
@group(0) @binding(6) var<uniform> hp: vec4<f32>;
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
    let m1 = hp.y * m[i] + (1.0 - hp.y) * grad;
    var v1: f32;
    var m_hat: f32;
    var v_hat: f32;
    if PRECISE {
        v1 = hp.z * v[i] + bias.w * (grad * grad);
        m_hat = m1 * bias.x;
        v_hat = v1 * bias.y;
    } else {
        v1 = hp.z * v[i] + (1.0 - hp.z) * (grad * grad);
        m_hat = m1 / max(1.0 - bias.x, 1e-12);
        v_hat = v1 / max(1.0 - bias.y, 1e-12);
    }
    let update = hp.x * (m_hat / (sqrt(v_hat) + bias.z) + hp.w * w[i]);
    if is_finite(update) {
        w[i] = w[i] - update;
    }
    m[i] = m1;
    v[i] = v1;
    g[i] = 0.0;
}
