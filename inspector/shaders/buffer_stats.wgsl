// Counts over a range of a float32 buffer: kinds of non-finite values and where the first lies, zeros, the
// largest finite magnitude, and (HISTOGRAM) finite non-zero elements by biased exponent.

@group(0) @binding(0) var<storage, read> data: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<atomic<u32>, 264>;
@group(0) @binding(2) var<uniform> range: vec2<u32>;  // elements, index of the first of them

override HISTOGRAM: bool = true;

// Where things stand in the result, and in the workgroup's copy of it.
const ZEROS = 256u;
const NANS = 257u;
const POSINFS = 258u;
const NEGINFS = 259u;
const FIRST = 260u;    // starts at the largest u32
const LARGEST = 261u;  // bits of the magnitude: they are in the order of the numbers
const SLOTS = 262u;

var<workgroup> counts: array<atomic<u32>, SLOTS>;

struct Tally {
    zeros: u32,
    nans: u32,
    posinfs: u32,
    neginfs: u32,
    first: u32,
    largest: u32,
}

fn tally_element(tally: ptr<function, Tally>, x: f32, index: u32) {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    if magnitude >= EXPONENT_MASK {
        (*tally).first = min((*tally).first, index);
        if magnitude > EXPONENT_MASK {
            (*tally).nans += 1u;
        } else if bits == magnitude {
            (*tally).posinfs += 1u;
        } else {
            (*tally).neginfs += 1u;
        }
        return;
    }
    (*tally).largest = max((*tally).largest, magnitude);
    if magnitude == 0u {
        (*tally).zeros += 1u;
    } else if HISTOGRAM {
        atomicAdd(&counts[magnitude >> 23u], 1u);
    }
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn buffer_stats(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var slot = local; slot < SLOTS; slot += WORKGROUP_SIZE) {
        atomicStore(&counts[slot], select(0u, 0xffffffffu, slot == FIRST));
    }
    workgroupBarrier();

    var tally = Tally(0u, 0u, 0u, 0u, 0xffffffffu, 0u);
    let n = range.x;
    let stride = groups.x * WORKGROUP_SIZE;
    for (var i = gid.x; 4u * i < n; i += stride) {
        let x = data[i];
        let first = 4u * i;
        tally_element(&tally, x.x, range.y + first);
        if first + 1u < n { tally_element(&tally, x.y, range.y + first + 1u); }
        if first + 2u < n { tally_element(&tally, x.z, range.y + first + 2u); }
        if first + 3u < n { tally_element(&tally, x.w, range.y + first + 3u); }
    }
    if tally.zeros > 0u { atomicAdd(&counts[ZEROS], tally.zeros); }
    if tally.nans > 0u { atomicAdd(&counts[NANS], tally.nans); }
    if tally.posinfs > 0u { atomicAdd(&counts[POSINFS], tally.posinfs); }
    if tally.neginfs > 0u { atomicAdd(&counts[NEGINFS], tally.neginfs); }
    if tally.first != 0xffffffffu { atomicMin(&counts[FIRST], tally.first); }
    if tally.largest > 0u { atomicMax(&counts[LARGEST], tally.largest); }
    workgroupBarrier();

    for (var slot = local; slot < SLOTS; slot += WORKGROUP_SIZE) {
        let count = atomicLoad(&counts[slot]);
        if slot == FIRST {
            atomicMin(&result[slot], count);
        } else if slot == LARGEST {
            atomicMax(&result[slot], count);
        } else if count > 0u {
            atomicAdd(&result[slot], count);
        }
    }
}
