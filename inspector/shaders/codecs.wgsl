// 8-bit codes of m and v, placed after common.wgsl. The rules, and where they come from, are in codecs.py.

override CODEC: u32 = 0u;

const LINEAR = 0u;
const SQRT = 1u;
const DYNAMIC = 2u;

const THREADS_A_BLOCK = 64u;      // four elements each
const LARGEST = 8.507059e37;      // 2^126
const LEAST_NORMAL = 1.17549435e-38;

fn is_nan4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4(0x7fffffffu)) > vec4(EXPONENT_MASK);
}

// --- what is coded: limited to what has a code, and the root of v in sqrt

fn coded_m(m: vec4<f32>) -> vec4<f32> {
    return select(clamp(m, vec4(-LARGEST), vec4(LARGEST)), vec4(0.0), is_nan4(m));
}

fn coded_v(v: vec4<f32>) -> vec4<f32> {
    let limited = select(clamp(v, vec4(0.0), vec4(LARGEST)), vec4(0.0), is_nan4(v));
    if CODEC == SQRT {
        return sqrt(limited);
    }
    return limited;
}

// --- the scale of a block

var<workgroup> thread_maxima: array<vec2<f32>, WORKGROUP_SIZE>;
var<workgroup> part_maxima: array<vec2<f32>, WORKGROUP_SIZE / 8u>;

fn largest4(x: vec4<f32>) -> f32 {
    let a = abs(x);
    return max(max(a.x, a.y), max(a.z, a.w));
}

// The largest of the block's 64 pairs, in two rounds of eight. Every thread of the workgroup has to call it.
fn block_maxima(local: u32, mine: vec2<f32>) -> vec2<f32> {
    thread_maxima[local] = mine;
    workgroupBarrier();
    if local < WORKGROUP_SIZE / 8u {
        var part = thread_maxima[8u * local];
        for (var k = 1u; k < 8u; k++) {
            part = max(part, thread_maxima[8u * local + k]);
        }
        part_maxima[local] = part;
    }
    workgroupBarrier();
    let first = local / THREADS_A_BLOCK * 8u;
    var all = part_maxima[first];
    for (var k = 1u; k < 8u; k++) {
        all = max(all, part_maxima[first + k]);
    }
    return all;
}

fn scale_for(largest: f32) -> f32 {
    if CODEC == DYNAMIC {
        return select(largest, 0.0, largest < LEAST_NORMAL);
    }
    return max(largest / 127.0, 1e-12);
}

// --- bytes

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4(word) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

fn bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u));
}

fn packed(codes: vec4<u32>) -> u32 {
    return (codes.x & 255u) | (codes.y & 255u) << 8u | (codes.z & 255u) << 16u | codes.w << 24u;
}

// --- the dynamic map, see `dynamic_map`: its numbers J are in seven decades of 2^d parts

struct Map {
    first: f32,               // parts of the first decade
    q: array<f32, 7>,         // unit of each decade
    edges: array<f32, 8>,     // of 0 with the first value, of each decade with the next, of the last value with 1
}

const MAP_M = Map(
    1.0,
    array(5e-08, 2.5e-07, 1.25e-06, 6.25e-06, 3.125e-05, 0.00015625, 0.00078125),
    array(2.75e-07, 1.9e-06, 1.45e-05, 0.0001225, 0.0011125, 0.010562501, 0.1028125, 0.9964844),
);
const MAP_V = Map(
    2.0,
    array(2.5e-08, 1.25e-07, 6.25e-07, 3.125e-06, 1.5625e-05, 7.8125e-05, 0.000390625),
    array(1.625e-07, 1.45e-06, 1.225e-05, 0.000111249996, 0.00105625, 0.010281251, 0.10140625, 0.9982422),
);

// A decade for each of four elements: 2^d parts, its unit, and about 1 / unit.
struct Decade {
    parts: vec4<f32>,
    q: vec4<f32>,
    inverse: vec4<f32>,
}

fn next_where(now: Decade, above: vec4<bool>, q: f32) -> Decade {
    return Decade(
        select(now.parts, now.parts * 2.0, above),
        select(now.q, vec4(q), above),
        select(now.inverse, vec4(1.0 / q), above),
    );
}

fn first_decade(map: Map) -> Decade {
    return Decade(vec4(map.first), vec4(map.q[0]), vec4(1.0 / map.q[0]));
}

// The middle of part number J, as a float of at least map.first and below the number of 1.
fn middle(J: vec4<f32>, map: Map) -> vec4<f32> {
    var d = first_decade(map);
    d = next_where(d, J >= vec4(2.0 * map.first), map.q[1]);
    d = next_where(d, J >= vec4(4.0 * map.first), map.q[2]);
    d = next_where(d, J >= vec4(8.0 * map.first), map.q[3]);
    d = next_where(d, J >= vec4(16.0 * map.first), map.q[4]);
    d = next_where(d, J >= vec4(32.0 * map.first), map.q[5]);
    d = next_where(d, J >= vec4(64.0 * map.first), map.q[6]);
    return (18.0 * J + 9.0 - 16.0 * d.parts) * d.q;
}

// The number J of the value nearest to each magnitude, in units of the scale; on an edge the lesser one. Decided by
// comparing with an edge times the scale: products of constants and whole numbers, the same bits everywhere.
fn nearest(x: vec4<f32>, scale: f32, map: Map) -> vec4<f32> {
    var d = first_decade(map);
    d = next_where(d, x > vec4(map.edges[1] * scale), map.q[1]);
    d = next_where(d, x > vec4(map.edges[2] * scale), map.q[2]);
    d = next_where(d, x > vec4(map.edges[3] * scale), map.q[3]);
    d = next_where(d, x > vec4(map.edges[4] * scale), map.q[4]);
    d = next_where(d, x > vec4(map.edges[5] * scale), map.q[5]);
    d = next_where(d, x > vec4(map.edges[6] * scale), map.q[6]);
    // The nearest midpoint, as well as a rough division can tell, then which side of it.
    let number = round((x * (1.0 / scale) * d.inverse + 16.0 * d.parts) * (1.0 / 18.0));
    let midpoint = (18.0 * number - 16.0 * d.parts) * d.q * scale;
    let J = clamp(select(number - 1.0, number, x > midpoint), d.parts, 2.0 * d.parts - 1.0);
    let some = select(vec4(map.first - 1.0), J, x > vec4(map.edges[0] * scale));
    return select(some, vec4(128.0 * map.first), x > vec4(map.edges[7] * scale));
}

// --- values from codes

fn decode_m(word: u32, scale: f32) -> vec4<f32> {
    if CODEC == DYNAMIC {
        let code = bytes(word) - 127.0;
        let J = abs(code);
        let magnitude = select(middle(max(J, vec4(1.0)), MAP_M), vec4(1.0), J == vec4(128.0)) * scale;
        // No -0 from a block whose scale is 0, but NaN from one whose scale is.
        let some = J != vec4(0.0) & vec4((bitcast<u32>(scale) & 0x7fffffffu) != 0u);
        return select(vec4(0.0), select(magnitude, -magnitude, code < vec4(0.0)), some);
    }
    return signed_bytes(word) * scale;
}

fn decode_v(word: u32, scale: f32) -> vec4<f32> {
    if CODEC == DYNAMIC {
        let J = bytes(word) + 1.0;
        let part = select(middle(max(J, vec4(2.0)), MAP_V), vec4(1.0), J == vec4(256.0));
        return select(vec4(0.0), part * scale, J > vec4(1.0));
    }
    let x = signed_bytes(word) * scale;
    if CODEC == SQRT {
        return x * x;
    }
    return x;
}

// --- codes from what is coded

fn linear_codes(x: vec4<f32>, scale: f32) -> vec4<f32> {
    // round() takes halves to the even number.
    return clamp(round(x / scale), vec4(-127.0), vec4(127.0));
}

fn packed_signed(codes: vec4<f32>) -> u32 {
    return packed(bitcast<vec4<u32>>(vec4<i32>(codes)));
}

fn encode_m(x: vec4<f32>, scale: f32) -> u32 {
    if CODEC == DYNAMIC {
        let J = select(nearest(abs(x), scale, MAP_M), vec4(0.0), scale == 0.0);
        // 1 has no negative.
        let signed = select(J, -min(J, vec4(127.0)), x < vec4(0.0));
        return packed(vec4<u32>(signed + 127.0));
    }
    return packed_signed(linear_codes(x, scale));
}

fn encode_v(x: vec4<f32>, scale: f32) -> u32 {
    if CODEC == DYNAMIC {
        return packed(vec4<u32>(select(nearest(x, scale, MAP_V), vec4(1.0), scale == 0.0) - 1.0));
    }
    let codes = linear_codes(x, scale);
    if CODEC == SQRT {
        return packed_signed(max(codes, select(vec4(0.0), vec4(1.0), x > vec4(0.0))));
    }
    return packed_signed(codes);
}
