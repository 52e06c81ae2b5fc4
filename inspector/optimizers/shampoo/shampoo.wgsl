// Shampoo for the elements of a matrix. v holds what the roots made of the m_hat of the whole block by then.
// hp: lr, beta1, beta2, weight decay. exact, where PRECISE: 1-beta1. bias: as Adam's.

// The factors are sums of what gradients give, as in the paper, and not their averages.
override SUMMED: bool = false;

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
    if PRECISE {
        to.m_hat = to.m * bias.x;
    } else {
        to.m_hat = to.m / max(1.0 - bias.x, 1e-12);
    }
    to.v = v;
    to.ratio = v;
    to.decay = decay * w;
    to.change = hp.x * (v + to.decay);
    to.w = select(w, w - to.change, is_finite4(to.change));
    return to;
}

// A block of a matrix: its first element as its table counts them, those from one row of the matrix to the next, its size.
struct Block {
    start: u32,
    stride: u32,
    rows: u32,
    columns: u32,
}

// Where an element of a stacked block lies; not inside where its matrix ends before it.
struct Cell {
    inside: bool,
    place: u32,
}

// Element `at`, row by row in `width` columns. Of one before the piece that is bound the place wraps: it is beyond its size.
fn cell_of(block: Block, at: u32, width: u32) -> Cell {
    let row = at / width;
    let column = at % width;
    return Cell(row < block.rows && column < block.columns, block.start + row * block.stride + column);
}
