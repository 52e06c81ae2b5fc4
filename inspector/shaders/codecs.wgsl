// 8-bit codes of m and v, placed after common.wgsl. The rules, and where they come from, are in codecs.py.

override CODEC: u32 = 0u;

const LINEAR = 0u;
const SQRT = 1u;
const DYNAMIC = 2u;

const THREADS_A_BLOCK = 64u;      // four elements each
const LARGEST_CODABLE = 8.507059e37;      // 2^126
const LEAST_NORMAL = 1.17549435e-38;

fn is_nan4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4(0x7fffffffu)) > vec4(EXPONENT_MASK);
}

// --- what is coded: limited to what has a code, and the root of v in sqrt

fn coded_m(m: vec4<f32>) -> vec4<f32> {
    return select(clamp(m, vec4(-LARGEST_CODABLE), vec4(LARGEST_CODABLE)), vec4(0.0), is_nan4(m));
}

fn coded_v(v: vec4<f32>) -> vec4<f32> {
    let limited = select(clamp(v, vec4(0.0), vec4(LARGEST_CODABLE)), vec4(0.0), is_nan4(v));
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

fn bytes(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u);
}

fn packed(codes: vec4<u32>) -> u32 {
    return (codes.x & 255u) | (codes.y & 255u) << 8u | (codes.z & 255u) << 16u | codes.w << 24u;
}

// --- the dynamic map, see `dynamic_map`: its numbers J are in seven decades of 2^d parts
//
// A workgroup writes the map to its memory once: looking up takes less than half the time of calculating.

struct Map {
    at: u32,                  // where its entries begin in the tables
    first: u32,               // number of the first value, and parts of its decade
}

const MAP_M = Map(0u, 1u);
const MAP_V = Map(256u, 2u);

const DECADES = 8u;           // for each map; the last stands for the one before it
const UNITS = array<f32, 16>(
    5e-08, 2.5e-07, 1.25e-06, 6.25e-06, 3.125e-05, 0.00015625, 0.00078125, 0.00078125,
    2.5e-08, 1.25e-07, 6.25e-07, 3.125e-06, 1.5625e-05, 7.8125e-05, 0.000390625, 0.000390625,
);

var<workgroup> map_values: array<f32, 512>;       // by code
var<workgroup> map_edges: array<f32, 512>;        // with the next value: of m by its number J, of v by J - 1
var<workgroup> map_lines: array<vec2<f32>, 16>;   // by decade, see `line`

const ZERO_M = 0x7f7f7f7fu;   // codes of zeros
const ZERO_V = 0u;

fn unit(decade: u32, map: Map) -> f32 {
    return UNITS[map.at / 256u * DECADES + min(decade, DECADES - 1u)];
}

// The value of number J and its edge with the next, in units of the scale: products of a whole number or half of one
// and a constant, the same bits everywhere.
fn value_and_edge(J: u32, map: Map) -> vec2<f32> {
    let exponent = firstLeadingBit(max(J, map.first));
    let q = unit(exponent + 1u - map.first, map);
    let parts = f32(1u << exponent);
    if J < map.first {
        return vec2(0.0, (parts + 4.5) * q);
    }
    let last = 128u * map.first;
    let middle = 18.0 * f32(J) + 9.0 - 16.0 * parts;
    // The next decade's first part is wider, and 1 is no middle.
    var edge = middle + select(9.0, 27.0, J + 1u == 2u << exponent);
    edge = select(edge, 20.0 * parts - 4.5, J + 1u == last);
    return vec2(select(middle * q, 1.0, J == last), edge * q);
}

const LEAST = 2.3841858e-07;  // 2^-22
const QUARTERS = 2097152.0;   // 2^21: from here on the last bit of a float is a quarter

// About how many edges lie below y - LEAST in this decade, as slope and offset of a line over y: a whole number half a
// part below each edge, less 0.1 for what is rounded. QUARTERS added, so that wholes can be read off the bits.
fn line(decade: u32, map: Map) -> vec2<f32> {
    let slope = 1.0 / (18.0 * unit(decade, map));
    let parts = f32(map.first << min(decade, DECADES - 2u));
    return vec2(slope, QUARTERS + (16.0 / 18.0 * parts - f32(map.first) + 0.4 - slope * LEAST));
}

// Before the first value or code. Every thread of the workgroup has to call it.
fn make_tables(local: u32) {
    if CODEC != DYNAMIC {
        return;
    }
    if local < 128u {
        let m = value_and_edge(local, MAP_M);
        map_edges[local] = m.y;
        map_values[127u + local] = m.x;
        if local > 0u {
            map_values[127u - local] = -m.x;
        }
    }
    let v = value_and_edge(local + 1u, MAP_V);
    map_values[MAP_V.at + local] = v.x;
    map_edges[MAP_V.at + local] = v.y;
    if local < DECADES {
        map_lines[local] = line(local, MAP_M);
        map_lines[DECADES + local] = line(local, MAP_V);
    }
    if local == 0u {
        map_values[255] = 1.0;
    }
    workgroupBarrier();
}

fn values_of(codes: vec4<u32>, map: Map) -> vec4<f32> {
    let at = vec4(map.at) + codes;
    return vec4(map_values[at.x], map_values[at.y], map_values[at.z], map_values[at.w]);
}

// The decade of y, read off its bits as if they were a logarithm; 3.312 octaves each, from LEAST on. Every decade ends
// a little below where that of the map does, within its last part, where the line of the next leads to the same numbers.
fn decades(y: vec4<f32>) -> vec4<u32> {
    return ((bitcast<vec4<u32>>(y) >> vec4(15u)) * vec4(633198u) - vec4(3928590181u)) >> vec4(29u);
}

// How many edges lie below each magnitude, and so which value is nearest; on an edge the lesser one. A rough number,
// right or one too low, names the edge that decides; and that edge times the scale has the same bits everywhere.
fn edges_below(x: vec4<f32>, scale: f32, map: Map) -> vec4<u32> {
    let y = x * (1.0 / scale) + LEAST;
    let d = vec4(map.at / 256u * DECADES) + decades(y);
    let a = map_lines[d.x];
    let b = map_lines[d.y];
    let c = map_lines[d.z];
    let e = map_lines[d.w];
    let rough = y * vec4(a.x, b.x, c.x, e.x) + vec4(a.y, b.y, c.y, e.y);
    let number = (bitcast<vec4<u32>>(rough) >> vec4(2u)) & vec4(255u);
    let at = vec4(map.at) + number;
    let edges = vec4(map_edges[at.x], map_edges[at.y], map_edges[at.z], map_edges[at.w]);
    return number + select(vec4(0u), vec4(1u), x > edges * scale);
}

// --- values from codes

fn decode_m(word: u32, scale: f32) -> vec4<f32> {
    if CODEC == DYNAMIC {
        // No -0 from a block whose scale is 0.
        return values_of(bytes(select(word, ZERO_M, scale == 0.0)), MAP_M) * scale;
    }
    return signed_bytes(word) * scale;
}

fn decode_v(word: u32, scale: f32) -> vec4<f32> {
    if CODEC == DYNAMIC {
        return values_of(bytes(word), MAP_V) * scale;
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
        // 1 has no negative: what comes near it is taken back to the last that has.
        let J = edges_below(abs(max(x, vec4(-0.99 * scale))), scale, MAP_M);
        let codes = select(vec4(127u) + J, vec4(127u) - J, x < vec4(0.0));
        return select(packed(codes), ZERO_M, scale == 0.0);
    }
    return packed_signed(linear_codes(x, scale));
}

fn encode_v(x: vec4<f32>, scale: f32) -> u32 {
    if CODEC == DYNAMIC {
        return select(packed(edges_below(x, scale, MAP_V)), ZERO_V, scale == 0.0);
    }
    let codes = linear_codes(x, scale);
    if CODEC == SQRT {
        return packed_signed(max(codes, select(vec4(0.0), vec4(1.0), x > vec4(0.0))));
    }
    return packed_signed(codes);
}
