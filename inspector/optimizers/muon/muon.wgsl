// Muon for the elements of a hidden matrix. v holds the orthogonalised update of the whole matrix by then: the direction
// that `m_hat` is here, through the Newton-Schulz iterations, times the factor for the matrix's shape.
// hp: lr, momentum, -, weight decay. exact, where PRECISE: 1-momentum.

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
    let rest = select(1.0 - hp.y, exact.x, PRECISE);
    var to: Update;
    to.grad = select(1.0, clip_scale, FUSED) * select(vec4(0.0), g, is_finite4(g));
    to.m = hp.y * m + rest * to.grad;
    to.m_hat = hp.y * to.m + rest * to.grad;
    to.v = v;
    to.ratio = v;
    to.decay = decay * w;
    to.change = hp.x * (v + to.decay);
    to.w = select(w, w - to.change, is_finite4(to.change));
    return to;
}
