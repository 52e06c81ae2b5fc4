// Statistics of each param right before its update: of w, g, m, v, and of the update itself, which is computed
// here as it will be. One workgroup a chunk; a chunk never holds elements of two params.
//
// Counts are the same in any order. The sums of squares of a chunk are added in a fixed order and left to the
// host, in a row of numbers for each chunk; so the same data gives the same bits every run.

struct Settings {
    hp: vec4<f32>,
    exact: vec4<f32>,
    bias: vec4<f32>,
    first_chunk: u32,
    chunks: u32,
}

// Elements [4 * first, 4 * first + count) of what is bound, counted from `element` in the mega-buffer. `param` is
// the row of its histograms; the top bit says that it decays.
struct Chunk {
    param: u32,
    first: u32,
    count: u32,
    element: u32,
}

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(5) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(6) var<storage, read_write> histograms: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> rows: array<u32>;
@group(0) @binding(8) var<uniform> settings: Settings;

// Threads of a workgroup.
override GROUP: u32 = WORKGROUP_SIZE;
// A CPU is served better by few threads that count exponents in an array each, since atomics cost it more, and by
// code without branches, since its threads run in step and so run both sides.
override ON_CPU: bool = false;

// Where things stand in a chunk's row: eight numbers a lane (w, g, m, v), then those of the update.
const NANS = 0u;
const POSINFS = 1u;
const NEGINFS = 2u;
const FIRST = 3u;      // non-finite element
const LOWEST = 4u;     // as keys: integers in the order of the numbers
const HIGHEST = 5u;
const TOP = 6u;        // exponent that the sum of squares is scaled by
const LANE_SLOTS = 8u;
const SUMS = 32u;      // of w, g, m, v, update
const UPDATE_TOP = 37u;
const LARGEST = 38u;   // bits of the largest |update| / lr
const LARGEST_AT = 39u;
const LOST = 40u;
const BELOW_EPS = 41u;
const F16_OVER = 42u;
const F16_UNDER = 43u;
const SKIPPED = 44u;
const SLOTS = 48u;

const NONE = 0xffffffffu;
const BINS = 256u;
const ALL_BINS = 4u * BINS;
const MAGNITUDE = 0x7fffffffu;
const MAX_FINITE = 3.40282347e38;
const F16_INFINITE = 0x477ff000u;  // 65520: rounds to infinity in half precision
const F16_ZERO = 0x33000000u;      // 2^-25: rounds to 0
const F16_INFINITE_F32 = 65520.0;
const F16_ZERO_F32 = 2.9802322e-8;
const SLACK = 30u;
const TURN = 32u;

var<workgroup> row: array<atomic<u32>, SLOTS>;
var<workgroup> bins: array<atomic<u32>, ALL_BINS>;
var<workgroup> lane_sums: array<vec4<f32>, WORKGROUP_SIZE>;
var<workgroup> update_sums: array<f32, WORKGROUP_SIZE>;

fn min4(x: vec4<u32>) -> u32 {
    return min(min(x.x, x.y), min(x.z, x.w));
}

fn max4(x: vec4<u32>) -> u32 {
    return max(max(x.x, x.y), max(x.z, x.w));
}

fn count4(x: vec4<bool>) -> u32 {
    let ones = select(vec4(0u), vec4(1u), x);
    return ones.x + ones.y + ones.z + ones.w;
}

// --- sums of squares that neither overflow nor vanish: those of x * scale, which is a power of 2

struct Squares {
    sum: f32,
    before: f32,    // of the turns before: short sums of sums lose less to rounding than a long one
    scale: f32,
}

const NO_SQUARES = Squares(0.0, 0.0, 1.7014118e38);  // 2^127
const TOO_LARGE = 0x5f800000u;                       // bits of 2^64: leaves room for adding up

fn power_of_2(biased: u32) -> f32 {
    return bitcast<f32>(biased << 23u);
}

// The exponent met that led to the scale, 2^(128 - top).
fn top_of(squares: Squares) -> u32 {
    return 255u - (bitcast<u32>(squares.scale) >> 23u);
}

// The same for another top, which is not lower.
fn rescaled(squares: Squares, top: u32) -> Squares {
    let factor = power_of_2(127u - min(top - top_of(squares), 127u));
    return Squares(squares.sum * factor * factor, squares.before * factor * factor, power_of_2(255u - top));
}

fn square(squares: Squares, x: vec4<f32>) -> f32 {
    let y = x * squares.scale;
    return dot(y, y);
}

// With the squares of finite numbers of which `highest` is the largest biased exponent.
fn with_squares(before: Squares, x: vec4<f32>, highest: u32) -> Squares {
    var squares = before;
    if highest > top_of(squares) + SLACK {
        squares = rescaled(squares, highest);
    }
    squares.sum += square(squares, x);
    return squares;
}

fn next_turn(squares: Squares) -> Squares {
    return Squares(0.0, squares.before + squares.sum, squares.scale);
}

// --- one lane

struct Lane {
    low: f32,
    high: f32,
    squares: Squares,
}

const EMPTY = Lane(MAX_FINITE, -MAX_FINITE, NO_SQUARES);

// Zeros that were counted in the bin of the exponent 0.
fn take_back_zeros(which: u32, x: vec4<f32>) {
    let zeros = count4((bitcast<vec4<u32>>(x) & vec4(MAGNITUDE)) == vec4(0u));
    if !ON_CPU && zeros > 0u {
        atomicSub(&bins[BINS * which], zeros);
    }
}

// Four elements of a lane, of which `mine` belong to the param; the others are zero. `plain` means that all are its
// own and finite, and that their squares are added already.
fn with_elements(
    before: Lane, which: u32, x: vec4<f32>, mine: vec4<bool>, plain: bool,
    own: ptr<function, array<u32, ALL_BINS / 2u>>,
) -> Lane {
    var lane = before;
    let magnitude = bitcast<vec4<u32>>(x) & vec4(MAGNITUDE);
    let exponent = magnitude >> vec4(23u);
    let some = magnitude != vec4(0u);
    let bin = vec4(BINS * which) + exponent;
    if ON_CPU {
        let one = select(vec4(0u), vec4(1u) << ((exponent & vec4(1u)) * 16u), some);
        let word = bin / 2u;
        (*own)[word.x] += one.x;
        (*own)[word.y] += one.y;
        (*own)[word.z] += one.z;
        (*own)[word.w] += one.w;
    } else {
        // Zeros too: a branch an element would cost more than taking them back where there are any.
        atomicAdd(&bins[bin.x], 1u);
        atomicAdd(&bins[bin.y], 1u);
        atomicAdd(&bins[bin.z], 1u);
        atomicAdd(&bins[bin.w], 1u);
    }

    let finite = vec4(plain) | (exponent < vec4(255u));
    let counted = vec4(plain) | (finite & mine);
    let low = select(vec4(MAX_FINITE), x, counted);
    let high = select(vec4(-MAX_FINITE), x, counted);
    lane.low = min(lane.low, min(min(low.x, low.y), min(low.z, low.w)));
    lane.high = max(lane.high, max(max(high.x, high.y), max(high.z, high.w)));
    if !plain {
        take_back_zeros(which, x);
        let highest = max4(select(vec4(0u), magnitude, finite)) >> 23u;
        lane.squares = with_squares(lane.squares, select(vec4(0.0), x, finite), highest);
    }
    return lane;
}

// The number as an integer in the order of the numbers.
fn key(x: f32) -> u32 {
    let raw = bitcast<u32>(x);
    return raw ^ select(0x80000000u, NONE, raw > MAGNITUDE);
}

// Looks before it writes: after the first few threads hardly any has more to say.
fn raise(slot: u32, value: u32) {
    if value > atomicLoad(&row[slot]) {
        atomicMax(&row[slot], value);
    }
}

fn lower(slot: u32, value: u32) {
    if value < atomicLoad(&row[slot]) {
        atomicMin(&row[slot], value);
    }
}

fn count(slot: u32, value: u32) {
    if value > 0u {
        atomicAdd(&row[slot], value);
    }
}

fn add_lane(lane: Lane, which: u32) {
    let slot = LANE_SLOTS * which;
    if lane.low <= lane.high {
        lower(slot + LOWEST, key(lane.low));
        raise(slot + HIGHEST, key(lane.high));
    }
    raise(slot + TOP, top_of(lane.squares));
}

// --- the update

struct Tally {
    squares: Squares,
    largest: f32,
    largest_at: u32,
    lost: u32,
    below_eps: u32,
    f16_over: u32,
    f16_under: u32,
    skipped: u32,
}

fn with_update(before: Tally, to: Update, w0: vec4<f32>, element: u32, mine: vec4<bool>, plain: bool) -> Tally {
    var t = before;
    let size = bitcast<vec4<u32>>(to.change) & vec4(MAGNITUDE);
    let finite = vec4(plain) | ((size < vec4(EXPONENT_MASK)) & mine);
    if !plain {
        let highest = max4(select(vec4(0u), size, finite)) >> 23u;
        t.squares = with_squares(t.squares, select(vec4(0.0), to.change, finite), highest);
        t.skipped += count4(mine & !finite);
    }

    let each = select(vec4(0.0), abs(to.ratio + select(to.decay, vec4(0.0), L2)), finite);
    let largest = max(max(each.x, each.y), max(each.z, each.w));
    // Selected, as a thread finds a larger one so often that few of its neighbours would skip a branch.
    let nearest = select(select(select(3u, 2u, each.z == largest), 1u, each.y == largest), 0u, each.x == largest);
    let larger = largest > t.largest;
    t.largest = select(t.largest, largest, larger);
    t.largest_at = select(t.largest_at, element + nearest, larger);

    // A finite update needs no second look before it is taken.
    let after = select(to.w, w0 - to.change, vec4(plain));
    let stays = bitcast<vec4<u32>>(after) == bitcast<vec4<u32>>(w0);
    // Bits of numbers that are not negative are in their order, and those of no number lie beyond.
    let root = bitcast<vec4<u32>>(sqrt(to.v_hat));
    let eps = bitcast<u32>(max(settings.bias.z, 0.0));
    // One branch for all that is rare. What is compared here as floats is counted by bits.
    let reach = abs(after);
    let rare = any(stays) | (min4(root) < eps)
        | (max(max(reach.x, reach.y), max(reach.z, reach.w)) >= F16_INFINITE_F32)
        | (min(min(reach.x, reach.y), min(reach.z, reach.w)) <= F16_ZERO_F32);
    if !plain || rare {
        // Where w is not finite, neither is the update.
        t.lost += count4(finite & (size > vec4(0u)) & stays);
        let half = bitcast<vec4<u32>>(after) & vec4(MAGNITUDE);
        t.f16_over += count4(half - vec4(F16_INFINITE) < vec4(EXPONENT_MASK - F16_INFINITE));
        t.f16_under += count4(half - vec4(1u) < vec4(F16_ZERO));
        // A rule that divides by nothing has no use for ε.
        t.below_eps += count4(mine & (root < vec4(eps)) & (to.denominator != vec4(0.0)));
    }
    return t;
}

fn add_update(t: Tally) {
    raise(UPDATE_TOP, top_of(t.squares));
    raise(LARGEST, bitcast<u32>(t.largest));
    count(LOST, t.lost);
    count(BELOW_EPS, t.below_eps);
    count(F16_OVER, t.f16_over);
    count(F16_UNDER, t.f16_under);
    count(SKIPPED, t.skipped);
}

// --- a chunk

// The chunk of a workgroup, none for one beyond the last.
fn chunk_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    let flat = group.y * groups.x + group.x;
    return select(NONE, settings.first_chunk + flat, flat < settings.chunks);
}

fn clear_row(local: u32) {
    for (var slot = local; slot < SLOTS; slot += GROUP) {
        let at = slot % LANE_SLOTS;
        let starts_high = (slot < SUMS && (at == FIRST || at == LOWEST)) || slot == LARGEST_AT;
        atomicStore(&row[slot], select(0u, NONE, starts_high));
    }
}

fn total(squares: Squares, slot: u32) -> f32 {
    let all = rescaled(squares, atomicLoad(&row[slot]));
    return all.sum + all.before;
}

@compute @workgroup_size(GROUP)
fn param_stats(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let number = chunk_number(group, groups);
    if number == NONE {
        return;
    }
    let chunk = chunks[number];
    let param = chunk.param & MAGNITUDE;
    // Whether it decays is told to `adam` by an index before or after the last one that does.
    let decays = select(0u, NONE, param == chunk.param);

    clear_row(local);
    for (var bin = local; bin < ALL_BINS; bin += GROUP) {
        atomicStore(&bins[bin], 0u);
    }
    workgroupBarrier();

    var own: array<u32, ALL_BINS / 2u>;
    var in_w = EMPTY;
    var in_g = EMPTY;
    var in_m = EMPTY;
    var in_v = EMPTY;
    var t = Tally(NO_SQUARES, 0.0, NONE, 0u, 0u, 0u, 0u, 0u);
    let vectors = (chunk.count + 3u) / 4u;
    for (var turn = 0u; turn < vectors; turn += TURN * GROUP) {
        let end = min(turn + TURN * GROUP, vectors);
        // The next four vectors are on their way while these are counted; beyond the last it is read again.
        let first = chunk.first + min(turn + local, vectors - 1u);
        var w1 = w[first];
        var g1 = g[first];
        var m1 = m[first];
        var v1 = v[first];
        for (var i = turn + local; i < end; i += GROUP) {
            let element = chunk.element + 4u * i;
            let w0 = w1;
            let g0 = g1;
            let m0 = m1;
            let v0 = v1;
            let at = chunk.first + min(i + GROUP, vectors - 1u);
            w1 = w[at];
            g1 = g[at];
            m1 = m[at];
            v1 = v[at];
            let to = updated(w0, g0, m0, v0, grad_stats[1], settings.hp, settings.exact, settings.bias, decays);
            let squares = vec4(
                square(in_w.squares, w0), square(in_g.squares, g0), square(in_m.squares, m0),
                square(in_v.squares, v0),
            );
            let moved = square(t.squares, to.change);
            // By bits: those of infinity and of no number lie beyond, so that all five vectors are finite.
            let fits = bitcast<u32>(squares.x + squares.y + (squares.z + squares.w) + moved) < TOO_LARGE;
            if !ON_CPU && fits && 4u * i + 4u <= chunk.count {
                in_w.squares.sum += squares.x;
                in_g.squares.sum += squares.y;
                in_m.squares.sum += squares.z;
                in_v.squares.sum += squares.w;
                t.squares.sum += moved;
                in_w = with_elements(in_w, 0u, w0, vec4(true), true, &own);
                in_g = with_elements(in_g, 1u, g0, vec4(true), true, &own);
                in_m = with_elements(in_m, 2u, m0, vec4(true), true, &own);
                in_v = with_elements(in_v, 3u, v0, vec4(true), true, &own);
                t = with_update(t, to, w0, element, vec4(true), true);
                // One product for four tests; where it vanishes without a zero, nothing is taken back.
                let product = w0 * in_w.squares.scale * (g0 * in_g.squares.scale)
                    * (m0 * in_m.squares.scale * (v0 * in_v.squares.scale));
                if any(product == vec4(0.0)) {
                    take_back_zeros(0u, w0);
                    take_back_zeros(1u, g0);
                    take_back_zeros(2u, m0);
                    take_back_zeros(3u, v0);
                }
            } else {
                let mine = lanes_below(4u * i, chunk.count);
                in_w = with_elements(in_w, 0u, w0, mine, false, &own);
                in_g = with_elements(in_g, 1u, g0, mine, false, &own);
                in_m = with_elements(in_m, 2u, m0, mine, false, &own);
                in_v = with_elements(in_v, 3u, v0, mine, false, &own);
                t = with_update(t, to, w0, element, mine, false);
            }
        }
        in_w.squares = next_turn(in_w.squares);
        in_g.squares = next_turn(in_g.squares);
        in_m.squares = next_turn(in_m.squares);
        in_v.squares = next_turn(in_v.squares);
        t.squares = next_turn(t.squares);
    }
    if ON_CPU {
        for (var bin = 0u; bin < ALL_BINS; bin++) {
            let n = (own[bin / 2u] >> (16u * (bin & 1u))) & 0xffffu;
            if n > 0u {
                atomicAdd(&bins[bin], n);
            }
        }
    }
    add_lane(in_w, 0u);
    add_lane(in_g, 1u);
    add_lane(in_m, 2u);
    add_lane(in_v, 3u);
    add_update(t);
    workgroupBarrier();

    if t.largest > 0.0 && bitcast<u32>(t.largest) == atomicLoad(&row[LARGEST]) {
        atomicMin(&row[LARGEST_AT], t.largest_at);
    }
    lane_sums[local] = vec4(
        total(in_w.squares, TOP),
        total(in_g.squares, LANE_SLOTS + TOP),
        total(in_m.squares, 2u * LANE_SLOTS + TOP),
        total(in_v.squares, 3u * LANE_SLOTS + TOP),
    );
    update_sums[local] = total(t.squares, UPDATE_TOP);
    workgroupBarrier();
    if local < 16u {
        for (var k = 16u + local; k < GROUP; k += 16u) {
            lane_sums[local] += lane_sums[k];
            update_sums[local] += update_sums[k];
        }
    }
    workgroupBarrier();
    if local == 0u {
        var sums = lane_sums[0];
        var updates = update_sums[0];
        for (var k = 1u; k < min(GROUP, 16u); k++) {
            sums += lane_sums[k];
            updates += update_sums[k];
        }
        for (var k = 0u; k < 4u; k++) {
            atomicStore(&row[SUMS + k], bitcast<u32>(sums[k]));
        }
        atomicStore(&row[SUMS + 4u], bitcast<u32>(updates));
    }
    workgroupBarrier();

    for (var slot = local; slot < SLOTS; slot += GROUP) {
        rows[SLOTS * number + slot] = atomicLoad(&row[slot]);
    }
    for (var bin = local; bin < ALL_BINS; bin += GROUP) {
        let count = atomicLoad(&bins[bin]);
        if count > 0u {
            atomicAdd(&histograms[ALL_BINS * param + bin], count);
        }
    }
}

// Which kinds of non-finite elements a chunk holds, and where the first is. Run where there are any: they are in
// the last bin.
@compute @workgroup_size(GROUP)
fn param_nonfinite(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let number = chunk_number(group, groups);
    if number == NONE {
        return;
    }
    let chunk = chunks[number];
    clear_row(local);
    workgroupBarrier();
    for (var i = local; 4u * i < chunk.count; i += GROUP) {
        let at = chunk.first + i;
        let element = chunk.element + 4u * i;
        count_nonfinite(0u, w[at], element);
        count_nonfinite(1u, g[at], element);
        count_nonfinite(2u, m[at], element);
        count_nonfinite(3u, v[at], element);
    }
    workgroupBarrier();
    for (var slot = local; slot < SUMS; slot += GROUP) {
        if slot % LANE_SLOTS <= FIRST {
            rows[SLOTS * number + slot] = atomicLoad(&row[slot]);
        }
    }
}

fn count_nonfinite(which: u32, x: vec4<f32>, element: u32) {
    let raw = bitcast<vec4<u32>>(x);
    let magnitude = raw & vec4(MAGNITUDE);
    let infinite = magnitude == vec4(EXPONENT_MASK);
    let slot = LANE_SLOTS * which;
    count(slot + NANS, count4(magnitude > vec4(EXPONENT_MASK)));
    count(slot + POSINFS, count4(infinite & (raw == magnitude)));
    count(slot + NEGINFS, count4(infinite & (raw != magnitude)));
    let at = vec4(element) + vec4(0u, 1u, 2u, 3u);
    lower(slot + FIRST, min4(select(vec4(NONE), at, magnitude >= vec4(EXPONENT_MASK))));
}
