// Stochastic gradient descent: what is subtracted is lr times the gradient, weight decay added to it.
// hp: lr, -, -, weight decay. m and v are passed through: it has neither.

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
    var to: Update;
    to.m = m;
    to.v = v;
    to.grad = select(1.0, clip_scale, FUSED) * select(vec4(0.0), g, is_finite4(g));
    to.decay = decay * w;
    to.m_hat = to.grad + to.decay;
    to.ratio = to.m_hat;
    to.change = hp.x * to.ratio;
    to.w = select(w, w - to.change, is_finite4(to.change));
    return to;
}
