// The update of one element, with every line written out.

@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read> m: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> index: u32;
@group(0) @binding(6) var<uniform> hp: vec4<f32>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;
@group(0) @binding(8) var<storage, read_write> lines: array<f32, 10>;

@compute @workgroup_size(1)
fn explain() {
    // Which of the four lanes the element is in does not matter: they do not mix.
    let first = index - index % 4u;
    let to = adam(
        vec4(w[index]), vec4(g[index]), vec4(m[index]), vec4(v[index]), grad_stats[1], hp, bias, first,
    );
    lines[0] = to.grad.x;
    lines[1] = to.m.x;
    lines[2] = to.v.x;
    lines[3] = to.m_hat.x;
    lines[4] = to.v_hat.x;
    lines[5] = to.denominator.x;
    lines[6] = to.ratio.x;
    lines[7] = to.decay.x;
    lines[8] = to.change.x;
    lines[9] = to.w.x;
}
