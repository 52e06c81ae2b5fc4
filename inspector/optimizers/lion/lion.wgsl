// Lion: the sign of the gradient blended into m, and m that then forgets more slowly.
// hp: lr, beta1, beta2, weight decay. bias, where PRECISE: 1-beta1, 1-beta2. v is passed through: it has none.

// The sign, 0 for 0; not a number stays what it is, so that its element is left alone.
fn sign_of(x: vec4<f32>) -> vec4<f32> {
    let magnitude = bitcast<vec4<u32>>(x) & vec4(0x7fffffffu);
    return select(sign(x), x, magnitude > vec4(EXPONENT_MASK));
}

fn updated(
    w: vec4<f32>,
    g: vec4<f32>,
    m: vec4<f32>,
    v: vec4<f32>,
    clip_scale: f32,
    hp: vec4<f32>,
    exact: vec4<f32>,
    bias: vec4<f32>,
    first: u32,
) -> Update {
    let decay = select(0.0, hp.w, first < WD_ELEMENTS);
    let rest = select(vec2(1.0) - hp.yz, bias.xy, PRECISE);
    var to: Update;
    to.v = v;
    to.grad = select(1.0, clip_scale, FUSED) * select(vec4(0.0), g, is_finite4(g));
    to.m_hat = hp.y * m + rest.x * to.grad;
    to.ratio = sign_of(to.m_hat);
    to.decay = decay * w;
    to.change = hp.x * (to.ratio + to.decay);
    to.m = hp.z * m + rest.y * to.grad;
    to.w = select(w, w - to.change, is_finite4(to.change));
    return to;
}
