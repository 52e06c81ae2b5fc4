// What coding m and v in 8 bits does to them: the m and v of the update to come, beside what their codes stand for.
// One workgroup a chunk of whole blocks of one param, four blocks a turn. What is read back is small: sums, maxima and
// counts of each chunk, and a histogram of each param; the errors of blocks stay on the device.

struct Settings {
    hp: vec4<f32>,
    exact: vec4<f32>,
    bias: vec4<f32>,
    chunks: u32,
    histograms: u32,     // word of `result` at which they begin
    block_errors: u32,
    first_block: u32,    // the block bound that has the first of them
}

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> m_packed: array<u32>;
@group(0) @binding(3) var<storage, read> v_packed: array<u32>;
@group(0) @binding(4) var<storage, read> m_scale: array<f32>;
@group(0) @binding(5) var<storage, read> v_scale: array<f32>;
@group(0) @binding(6) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(7) var<storage, read_write> result: array<atomic<u32>>;
@group(0) @binding(8) var<uniform> settings: Settings;

// A chunk's row: what the host says of it, what all of it has, and sums by which of a turn's four blocks they are of.
const ROW_WORDS = 48u;
const FIRST = 0u;            // vec4 bound, at the start of a block
const COUNT = 1u;            // elements
const HISTOGRAM = 2u;        // which of them
const DECAYS = 3u;
const LARGEST_ERROR = 4u;    // of m, then of v
const LOST = 6u;
const PARTS = 8u;
const PART_WORDS = 10u;      // of m, then of v: the five of Lane
const BINS = 256u;
const ELEMENTS_A_TURN = 4u * WORKGROUP_SIZE;

var<workgroup> chunk: vec4<u32>;
var<workgroup> bins: array<atomic<u32>, 2u * BINS>;
var<workgroup> largest_error: array<atomic<u32>, 2>;
var<workgroup> lost: atomic<u32>;
var<workgroup> thread_sums: array<vec4<f32>, WORKGROUP_SIZE>;
var<workgroup> part_sums: array<vec4<f32>, WORKGROUP_SIZE / 8u>;

// Sums over the blocks so far, of squares in units of (2^(top - 127))².
struct Lane {
    errors: f32,
    values: f32,
    top: u32,
    worst: f32,          // the largest root mean square error of a block
    worst_at: u32,       // that block of the chunk, the first of equals
}

// The sums of the block's 64 threads, in a fixed order. Every thread of the workgroup has to call it.
fn block_sums(local: u32, mine: vec4<f32>) -> vec4<f32> {
    thread_sums[local] = mine;
    workgroupBarrier();
    if local < WORKGROUP_SIZE / 8u {
        var part = thread_sums[8u * local];
        for (var k = 1u; k < 8u; k++) {
            part += thread_sums[8u * local + k];
        }
        part_sums[local] = part;
    }
    workgroupBarrier();
    let first = local / THREADS_A_BLOCK * 8u;
    var all = part_sums[first];
    for (var k = 1u; k < 8u; k++) {
        all += part_sums[first + k];
    }
    return all;
}

fn power_of_2(biased: u32) -> f32 {
    return bitcast<f32>(biased << 23u);
}

// 1 / x, or 0 where x is too small to be divided by.
fn inverse(x: f32) -> f32 {
    return select(1.0 / max(x, LEAST_NORMAL), 0.0, x < LEAST_NORMAL);
}

// With a block whose squares are in units of `largest`².
fn with_block(before: Lane, errors: f32, values: f32, largest: f32, rms: f32, block: u32) -> Lane {
    var to = before;
    if largest >= LEAST_NORMAL {
        let top = bitcast<u32>(largest) >> 23u;
        if top > to.top {
            let factor = power_of_2(127u - min(top - to.top, 126u));
            to.errors *= factor * factor;
            to.values *= factor * factor;
            to.top = top;
        }
        let factor = largest * power_of_2(254u - to.top);
        to.errors += errors * factor * factor;
        to.values += values * factor * factor;
    }
    if rms > to.worst {
        to.worst = rms;
        to.worst_at = block;
    }
    return to;
}

fn count_error(first_bin: u32, error: f32) {
    if error > 0.0 {
        atomicAdd(&bins[first_bin + (bitcast<u32>(error) >> 23u)], 1u);
    }
}

fn count_errors(first_bin: u32, errors: vec4<f32>) {
    count_error(first_bin, errors.x);
    count_error(first_bin, errors.y);
    count_error(first_bin, errors.z);
    count_error(first_bin, errors.w);
}

fn store(at: u32, value: f32) {
    atomicStore(&result[at], bitcast<u32>(value));
}

fn store_lane(at: u32, lane: Lane) {
    store(at, lane.errors);
    store(at + 1u, lane.values);
    atomicStore(&result[at + 2u], lane.top);
    store(at + 3u, lane.worst);
    atomicStore(&result[at + 4u], lane.worst_at);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn coding_error(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let number = group.y * groups.x + group.x;
    if number >= settings.chunks {
        return;
    }
    let row = ROW_WORDS * number;
    // Cleared here: not every implementation clears workgroup memory between the groups it runs.
    for (var bin = local; bin < 2u * BINS; bin += WORKGROUP_SIZE) {
        atomicStore(&bins[bin], 0u);
    }
    if local == 0u {
        atomicStore(&largest_error[0], 0u);
        atomicStore(&largest_error[1], 0u);
        atomicStore(&lost, 0u);
        chunk = vec4(
            atomicLoad(&result[row + FIRST]),
            atomicLoad(&result[row + COUNT]),
            atomicLoad(&result[row + HISTOGRAM]),
            atomicLoad(&result[row + DECAYS]),
        );
    }
    let mine = workgroupUniformLoad(&chunk);
    make_tables(local);
    let count = mine.y;
    let hp = vec4(settings.hp.xyz, select(0.0, settings.hp.w, mine.w != 0u));
    let part = local / THREADS_A_BLOCK;
    var m_lane = Lane(0.0, 0.0, 0u, 0.0, 0u);
    var v_lane = m_lane;
    var m_top = 0.0;
    var v_top = 0.0;
    var gone = 0u;
    for (var at = 0u; at < count; at += ELEMENTS_A_TURN) {
        let element = at + 4u * local;
        let inside = lanes_below(element, count);
        let i = mine.x + at / 4u + local;
        let block = i / THREADS_A_BLOCK;
        var m1 = vec4(0.0);
        var v1 = vec4(0.0);
        if element < count {
            let m0 = decode_m(m_packed[i], m_scale[block]);
            let v0 = decode_v(v_packed[i], v_scale[block]);
            let to = adam(w[i], g[i], m0, v0, grad_stats[1], hp, settings.exact, settings.bias, 0u);
            m1 = select(vec4(0.0), coded_m(to.m), inside);
            // As limited as what is coded, but no root.
            v1 = select(vec4(0.0), clamp(to.v, vec4(0.0), vec4(LARGEST_CODABLE)), inside & !is_nan4(to.v));
        }
        let v_coded = coded_v(v1);
        let largest = block_maxima(local, vec2(largest4(m1), largest4(v_coded)));
        let scale_m = scale_for(largest.x);
        let scale_v = scale_for(largest.y);
        let m2 = decode_m(encode_m(m1, scale_m), scale_m);
        let v2 = decode_v(encode_v(v_coded, scale_v), scale_v);
        let m_error = select(vec4(0.0), abs(m2 - m1), inside);
        let v_error = select(vec4(0.0), abs(v2 - v1), inside);
        m_top = max(m_top, largest4(m_error));
        v_top = max(v_top, largest4(v_error));
        let zeroed = inside & (v2 == vec4(0.0)) & (v1 != vec4(0.0)) & (m2 != vec4(0.0));
        let ones = select(vec4(0u), vec4(1u), zeroed);
        gone += ones.x + ones.y + ones.z + ones.w;
        count_errors(0u, m_error);
        count_errors(BINS, v_error);

        // In units of the block's largest magnitude, which no error exceeds by much.
        let largest_v = select(largest.y, largest.y * largest.y, CODEC == SQRT);
        let per_m = inverse(largest.x);
        let per_v = inverse(largest_v);
        let a = m_error * per_m;
        let b = m1 * per_m;
        let c = v_error * per_v;
        let d = v1 * per_v;
        let sums = block_sums(local, vec4(dot(a, a), dot(b, b), dot(c, c), dot(d, d)));
        let block_start = at + part * 4u * THREADS_A_BLOCK;
        if block_start < count {
            let elements = f32(min(count - block_start, 4u * THREADS_A_BLOCK));
            let rms_m = largest.x * sqrt(sums.x / elements);
            let rms_v = largest_v * sqrt(sums.z / elements);
            let of_chunk = block_start / (4u * THREADS_A_BLOCK);
            m_lane = with_block(m_lane, sums.x, sums.y, largest.x, rms_m, of_chunk);
            v_lane = with_block(v_lane, sums.z, sums.w, largest_v, rms_v, of_chunk);
            if local % THREADS_A_BLOCK == 0u {
                let to = settings.block_errors + 2u * (block - settings.first_block);
                store(to, rms_m);
                store(to + 1u, rms_v);
            }
        }
    }
    atomicMax(&largest_error[0], bitcast<u32>(m_top));
    atomicMax(&largest_error[1], bitcast<u32>(v_top));
    atomicAdd(&lost, gone);
    workgroupBarrier();
    if local == 0u {
        atomicStore(&result[row + LARGEST_ERROR], atomicLoad(&largest_error[0]));
        atomicStore(&result[row + LARGEST_ERROR + 1u], atomicLoad(&largest_error[1]));
        atomicStore(&result[row + LOST], atomicLoad(&lost));
    }
    if local % THREADS_A_BLOCK == 0u {
        let to = row + PARTS + PART_WORDS * part;
        store_lane(to, m_lane);
        store_lane(to + PART_WORDS / 2u, v_lane);
    }
    for (var bin = local; bin < 2u * BINS; bin += WORKGROUP_SIZE) {
        let counted = atomicLoad(&bins[bin]);
        if counted > 0u {
            atomicAdd(&result[settings.histograms + 2u * BINS * mine.z + bin], counted);
        }
    }
}
