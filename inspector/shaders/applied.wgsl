// The update of an optimizer that is not element by element, told by what it made of w: `v` is bound to w as it is after
// the step, `w` to w before. What w changes by is the update but for the rounding of w; an update that rounding takes
// away whole, or that is not finite, leaves w as it is and cannot be seen. hp: lr, -, -, -.

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
    var to: Update;
    to.m = m;
    to.v = v;
    // Nothing is ruled by an epsilon.
    to.v_hat = vec4(1.0);
    to.change = w - v;
    to.ratio = select(vec4(0.0), to.change / hp.x, hp.x != 0.0);
    to.w = v;
    return to;
}
