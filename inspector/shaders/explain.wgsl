// The update of one element, with every line written out. Each buffer holds the element eight times.

@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read> m: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<uniform> index: vec2<u32>;  // in w and g, in m and v, of the first of the eight
@group(0) @binding(6) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;
@group(0) @binding(8) var<storage, read_write> lines: array<f32, 10>;

@compute @workgroup_size(1)
fn explain() {
    // Which of the four lanes the element is in does not matter: they do not mix.
    let first = index.x - index.x % 4u;
    let w0 = vec4(w[index.x]);
    let g0 = vec4(g[index.x]);
    let m0 = vec4(m[index.y]);
    let v0 = vec4(v[index.y]);
    let to = updated(w0, g0, m0, v0, grad_stats[1], hp[0], hp[1], bias, first);
    // A compiler may round a product and a sum once where nobody else wants the product, as in an update nobody wants that
    // of the learning rate. So what an update writes is worked out as there: four elements, and no line in between is kept.
    // From copies, which no compiler knows to be equal.
    let i = index.x + 4u;
    let j = index.y + 4u;
    let wrote = updated(
        vec4(w[i], w[i + 1u], w[i + 2u], w[i + 3u]),
        vec4(g[i], g[i + 1u], g[i + 2u], g[i + 3u]),
        vec4(m[j], m[j + 1u], m[j + 2u], m[j + 3u]),
        vec4(v[j], v[j + 1u], v[j + 2u], v[j + 3u]),
        grad_stats[1],
        hp[0],
        hp[1],
        bias,
        first,
    );
    lines[0] = to.grad.x;
    lines[1] = wrote.m.x;
    lines[2] = wrote.v.x;
    lines[3] = to.m_hat.x;
    lines[4] = to.v_hat.x;
    lines[5] = to.denominator.x;
    lines[6] = to.ratio.x;
    lines[7] = to.decay.x;
    lines[8] = to.change.x;
    lines[9] = wrote.w.x;
}
