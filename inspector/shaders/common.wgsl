// Shared by the optimizer kernels; placed before each of them.

const WORKGROUP_SIZE = 256u;
const EXPONENT_MASK = 0x7f800000u;

// Finite means an exponent that is not all ones. Tested on the bits: a compiler may assume that no NaN
// exists and drop a comparison such as x != x.
fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & EXPONENT_MASK) != EXPONENT_MASK;
}

fn is_finite4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4(EXPONENT_MASK)) != vec4(EXPONENT_MASK);
}

// A grid beyond the limit of one dimension has several rows.
fn flat_id(gid: vec3<u32>, groups: vec3<u32>) -> u32 {
    return gid.y * groups.x * WORKGROUP_SIZE + gid.x;
}

// The vec4 that a thread of an update takes, from the last to the first of `size` elements: the norm read the gradient
// forwards, so that a large cache still has its end.
fn from_the_end(flat: u32, size: u32) -> u32 {
    return (size - 1u) / 4u - flat;
}

// The lanes of a vec4 that lie below `size`, the vec4 beginning at element `first`.
fn lanes_below(first: u32, size: u32) -> vec4<bool> {
    return vec4(first) + vec4(0u, 1u, 2u, 3u) < vec4(size);
}

// The half-precision number nearest to a float32, ties to even, as bits. Written out: WGSL leaves the
// rounding of its own conversions to the device.
fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > EXPONENT_MASK {
        return sign | 0x7e00u;
    }
    if magnitude >= 0x477ff000u {
        // 65520 and above: halfway to what would come after the largest half.
        return sign | 0x7c00u;
    }
    if magnitude >= 0x38800000u {
        let rebased = magnitude - 0x38000000u;
        return sign | round_even(rebased, 13u);
    }
    if magnitude < 0x33000000u {
        return sign;
    }
    // Below the least normal half: units of 2^-24.
    let shift = 126u - (magnitude >> 23u);
    return sign | round_even((magnitude & 0x7fffffu) | 0x800000u, shift);
}

// value / 2^shift to the nearest whole number, ties to even.
fn round_even(value: u32, shift: u32) -> u32 {
    let whole = value >> shift;
    let rest = value & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    return whole + select(0u, 1u, rest > middle || (rest == middle && (whole & 1u) == 1u));
}

fn half_bits4(x: vec4<f32>) -> vec2<u32> {
    return vec2(
        half_bits(x.x) | (half_bits(x.y) << 16u),
        half_bits(x.z) | (half_bits(x.w) << 16u),
    );
}

// Per run: bias terms as computed on the host in float64 (PRECISE), the pre-2017 form with weight decay in the
// gradient (L2), a gradient that a pass before has clipped already (not FUSED), and how many of the first
// elements bound are decayed where both blocks share a dispatch.
override PRECISE: bool = false;
override L2: bool = false;
override FUSED: bool = true;
override WD_ELEMENTS: u32 = 0xffffffffu;

// Every line of an update of four elements. `ratio` is what the learning rate multiplies, but for a decay that is
// decoupled. An optimizer leaves at 0 what it has no use for.
struct Update {
    grad: vec4<f32>,
    m: vec4<f32>,
    v: vec4<f32>,
    m_hat: vec4<f32>,
    v_hat: vec4<f32>,
    denominator: vec4<f32>,
    ratio: vec4<f32>,
    decay: vec4<f32>,
    change: vec4<f32>,
    w: vec4<f32>,
}

// What rounding took from a + b (Dekker 1971). Which is the larger is asked for though there are forms without: a compiler
// may cancel equal terms of sums, but does not where it cannot tell which they are.
fn lost_by_sum(a: vec4<f32>, b: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
    let swap = abs(a) > abs(b);
    return select(a, b, swap) - (sum - select(b, a, swap));
}

// a * b + c rounded once. A device may round the product of fma() too, which shows where c all but cancels it. So what the
// product lost is worked out, of parts of a and b whose products are exact, and what the sum lost, and put back.
fn fused(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>) -> vec4<f32> {
    let a_high = bitcast<vec4<f32>>(bitcast<vec4<u32>>(a) & vec4(0xfffff000u));
    let b_high = bitcast<vec4<f32>>(bitcast<vec4<u32>>(b) & vec4(0xfffff000u));
    let a_low = a - a_high;
    let b_low = b - b_high;
    let product = a * b;
    let of_product = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    let sum = product + c;
    let lost = lost_by_sum(product, c, sum) + of_product;
    return sum + select(vec4(0.0), lost, is_finite4(lost));
}

// The update itself. hp: lr, beta1, beta2, weight decay. bias: beta1^t, beta2^t, eps, -. PRECISE: rounded in the order in
// which PyTorch does on a CPU, with bias: 1/(1-beta1^t), 1/(1-beta2^t), eps, 1-beta2, and exact: 1-beta1, 1-lr*decay,
// lr/(1-beta1^t), sqrt(1-beta2^t). `first` is the index of the first of the four elements.
fn adam(
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
    to.grad = select(1.0, clip_scale, FUSED) * select(vec4(0.0), g, is_finite4(g));
    to.decay = decay * w;
    if PRECISE {
        if L2 {
            to.grad = fused(vec4(decay), w, to.grad);
        }
        // From the nearer end, as lerp_ does.
        let near = exact.x < 0.5;
        let part = vec4(select(exact.x - 1.0, exact.x, near));
        to.m = fused(part, to.grad - m, select(to.grad, m, near));
        to.v = fused(bias.w * to.grad, to.grad, hp.z * v);
        to.m_hat = to.m * bias.x;
        to.v_hat = to.v * bias.y;
        to.denominator = sqrt(to.v) / exact.w + bias.z;
        to.ratio = to.m_hat / to.denominator;
        let moved = exact.z * to.m / to.denominator;
        to.change = moved + select(hp.x * to.decay, vec4(0.0), L2);
        to.w = select(w, decayed(w, exact, first) - moved, is_finite4(to.change));
    } else {
        if L2 {
            to.grad += to.decay;
        }
        to.m = hp.y * m + (1.0 - hp.y) * to.grad;
        to.v = hp.z * v + (1.0 - hp.z) * (to.grad * to.grad);
        to.m_hat = to.m / max(1.0 - bias.x, 1e-12);
        to.v_hat = to.v / max(1.0 - bias.y, 1e-12);
        to.denominator = sqrt(to.v_hat) + bias.z;
        to.ratio = to.m_hat / to.denominator;
        if L2 {
            to.change = hp.x * to.ratio;
        } else {
            to.change = hp.x * (to.ratio + to.decay);
        }
        to.w = select(w, w - to.change, is_finite4(to.change));
    }
    return to;
}

// PRECISE: w after the decay, which is rounded before it is moved.
fn decayed(w: vec4<f32>, exact: vec4<f32>, first: u32) -> vec4<f32> {
    return w * select(1.0, exact.y, first < WD_ELEMENTS && !L2);
}
