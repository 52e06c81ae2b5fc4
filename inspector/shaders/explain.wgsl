// The update of one element, with every line written out. The same expressions as in adamw_update.

@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read> m: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> index: u32;
@group(0) @binding(6) var<uniform> hp: vec4<f32>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;
@group(0) @binding(8) var<storage, read_write> lines: array<f32, 10>;

override PRECISE: bool = false;

@compute @workgroup_size(1)
fn explain() {
    let w0 = w[index];
    let grad = grad_stats[1] * select(0.0, g[index], is_finite(g[index]));
    let m1 = hp.y * m[index] + (1.0 - hp.y) * grad;
    var v1: f32;
    var m_hat: f32;
    var v_hat: f32;
    if PRECISE {
        v1 = hp.z * v[index] + bias.w * (grad * grad);
        m_hat = m1 * bias.x;
        v_hat = v1 * bias.y;
    } else {
        v1 = hp.z * v[index] + (1.0 - hp.z) * (grad * grad);
        m_hat = m1 / max(1.0 - bias.x, 1e-12);
        v_hat = v1 / max(1.0 - bias.y, 1e-12);
    }
    let denominator = sqrt(v_hat) + bias.z;
    let ratio = m_hat / denominator;
    let decay = hp.w * w0;
    let update = hp.x * (ratio + decay);
    lines[0] = grad;
    lines[1] = m1;
    lines[2] = v1;
    lines[3] = m_hat;
    lines[4] = v_hat;
    lines[5] = denominator;
    lines[6] = ratio;
    lines[7] = decay;
    lines[8] = update;
    lines[9] = select(w0, w0 - update, is_finite(update));
}
