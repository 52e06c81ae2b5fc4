// How far two sets of weights are apart, chunk by chunk; a chunk holds elements of one param only. Each chunk is read
// twice, first for its largest numbers: the squares are of numbers scaled by a power of 2 to below 2, so that none
// overflows or vanishes. The same data gives the same bits every run.

// Elements [4 * first, 4 * first + count) of either; they lie at different places. The rest is what is found.
struct Row {
    first: u32,
    other_first: u32,
    count: u32,
    odd_at: u32,         // first element of the chunk whose difference is not finite
    apart: f32,          // sum of the squares of scaled differences
    norm: f32,           // and of scaled w
    largest: u32,        // bits of the largest finite difference
    largest_at: u32,     // first element that has it
    largest_w: u32,
}

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> other: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> rows: array<Row>;

const NONE = 0xffffffffu;
const MAGNITUDE = 0x7fffffffu;

var<workgroup> largest: atomic<u32>;
var<workgroup> largest_w: atomic<u32>;
var<workgroup> largest_at: atomic<u32>;
var<workgroup> odd_at: atomic<u32>;
var<workgroup> sums: array<vec2<f32>, WORKGROUP_SIZE>;

struct Pair {
    w: vec4<f32>,
    difference: vec4<f32>,
    odd: vec4<bool>,
}

// Four elements; what lies beyond the chunk, and differences that are not finite, as 0.
fn pair_at(row: Row, i: u32) -> Pair {
    let mine = lanes_below(4u * i, row.count);
    let a = w[row.first + i];
    let difference = a - other[row.other_first + i];
    let odd = mine & !is_finite4(difference);
    let taken = mine & !odd;
    return Pair(select(vec4(0.0), a, taken), select(vec4(0.0), difference, taken), odd);
}

fn first_of(which: vec4<bool>, i: u32) -> u32 {
    let at = select(vec4(NONE), vec4(4u * i) + vec4(0u, 1u, 2u, 3u), which);
    return min(min(at.x, at.y), min(at.z, at.w));
}

fn top4(x: vec4<u32>) -> u32 {
    return max(max(x.x, x.y), max(x.z, x.w));
}

// The power of 2 that brings numbers of at most this magnitude below 2.
fn scale_below_2(bits: u32) -> f32 {
    return bitcast<f32>(max(254u - (bits >> 23u), 1u) << 23u);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn drift(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let number = group.y * groups.x + group.x;
    if number >= arrayLength(&rows) {
        return;
    }
    if local == 0u {
        atomicStore(&largest, 0u);
        atomicStore(&largest_w, 0u);
        atomicStore(&largest_at, NONE);
        atomicStore(&odd_at, NONE);
    }
    workgroupBarrier();
    let row = rows[number];
    let quads = (row.count + 3u) / 4u;
    var top = 0u;
    var top_at = NONE;
    var top_w = 0u;
    var odd = NONE;
    for (var i = local; i < quads; i += WORKGROUP_SIZE) {
        let pair = pair_at(row, i);
        let bits = bitcast<vec4<u32>>(pair.difference) & vec4(MAGNITUDE);
        let highest = top4(bits);
        if highest > top {
            top = highest;
            top_at = first_of(bits == vec4(highest), i);
        }
        top_w = max(top_w, top4(bitcast<vec4<u32>>(pair.w) & vec4(MAGNITUDE)));
        odd = min(odd, first_of(pair.odd, i));
    }
    atomicMax(&largest, top);
    atomicMax(&largest_w, top_w);
    atomicMin(&odd_at, odd);
    workgroupBarrier();
    let all_top = atomicLoad(&largest);
    let all_top_w = atomicLoad(&largest_w);
    if top == all_top {
        atomicMin(&largest_at, top_at);
    }
    let scale = scale_below_2(all_top);
    let scale_w = scale_below_2(all_top_w);
    var sum = vec2(0.0);
    for (var i = local; i < quads; i += WORKGROUP_SIZE) {
        let pair = pair_at(row, i);
        let d = pair.difference * scale;
        let x = pair.w * scale_w;
        sum += vec2(dot(d, d), dot(x, x));
    }
    sums[local] = sum;
    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            sums[local] += sums[local + half];
        }
    }
    if local == 0u {
        rows[number].odd_at = atomicLoad(&odd_at);
        rows[number].apart = sums[0].x;
        rows[number].norm = sums[0].y;
        rows[number].largest = all_top;
        rows[number].largest_at = atomicLoad(&largest_at);
        rows[number].largest_w = all_top_w;
    }
}
