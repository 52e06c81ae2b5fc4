// SGD with momentum: m gathers gradients, weight decay added to each, and lr times m is subtracted.
// hp: lr, momentum, -, weight decay. v is passed through: it has none.

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
    to.v = v;
    to.grad = select(1.0, clip_scale, FUSED) * select(vec4(0.0), g, is_finite4(g));
    to.decay = decay * w;
    to.m_hat = to.grad + to.decay;
    to.m = hp.y * m + to.m_hat;
    to.ratio = to.m;
    to.change = hp.x * to.m;
    to.w = select(w, w - to.change, is_finite4(to.change));
    return to;
}
