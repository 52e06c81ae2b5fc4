// Adam's update, from float32 or from a coded state; placed after codecs.wgsl.

// With linear codes a v may round to 0 beside an outlier, under an m that does not. So that its element does not jump,
// ε is at least 1e-6 there and the ratio in [-1, 1], as published.
const LINEAR_EPS_FLOOR = 1e-6;

// Not set where a kernel that serves both kinds of state works on float32.
override CODED: bool = true;

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
    if !CODED || CODEC != LINEAR {
        return adam(w, g, m, v, clip_scale, hp, exact, bias, first);
    }
    let raised = vec4(bias.xy, max(bias.z, LINEAR_EPS_FLOOR), bias.w);
    var to = adam(w, g, m, v, clip_scale, hp, exact, raised, first);
    // Not a number stays what it is.
    to.ratio = select(clamp(to.ratio, vec4(-1.0), vec4(1.0)), to.ratio, is_nan4(to.ratio));
    if PRECISE {
        let moved = hp.x * to.ratio;
        to.change = moved + select(hp.x * to.decay, vec4(0.0), L2);
        to.w = select(w, decayed(w, exact, first) - moved, is_finite4(to.change));
    } else {
        to.change = hp.x * (to.ratio + select(to.decay, vec4(0.0), L2));
        to.w = select(w, w - to.change, is_finite4(to.change));
    }
    return to;
}
