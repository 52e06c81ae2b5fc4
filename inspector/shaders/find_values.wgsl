// Where elements match: how many, and as places in the mega-buffer the first, the last, the first after a place and the
// last before it. Values are compared by their bits, so that no device takes a denormal as 0.

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<atomic<u32>, 8>;
@group(0) @binding(3) var<uniform> ask: Ask;

override KIND: u32 = 0u;
const VALUES = 0u;
const MAGNITUDES = 1u;
const NANS = 2u;
const NONFINITE = 3u;
const CHANGED = 4u;
const PATTERN = 5u;

struct Ask {
    first: u32,  // the mega-buffer element that data[0].x is
    start: u32,  // elements [start, stop) of data are looked at, counted from its first
    stop: u32,
    low: u32,    // keys of what matches, both included
    high: u32,
    at: u32,     // the place that next and previous are counted from
}

// Places are kept as one more than they are, so that 0 is none; the least of them against what is left to the largest.
const COUNT = 0u;
const FIRST = 1u;
const LAST = 2u;
const NEXT = 3u;
const PREVIOUS = 4u;
const SLOTS = 5u;
const NONE = 0xffffffffu;

var<workgroup> found: array<atomic<u32>, SLOTS>;

fn least(slot: u32) -> bool {
    return slot == FIRST || slot == NEXT;
}

fn hit(bits: u32, old: u32) -> bool {
    let magnitude = bits & 0x7fffffffu;
    if KIND == NANS {
        return magnitude > EXPONENT_MASK;
    }
    if KIND == NONFINITE {
        return magnitude >= EXPONENT_MASK;
    }
    if KIND == CHANGED {
        return bits != old;
    }
    if KIND == PATTERN {
        return bits == ask.low;
    }
    if magnitude > EXPONENT_MASK {
        return false;
    }
    var key = magnitude;
    if KIND == VALUES {
        key = select(0x80000000u + magnitude, 0x80000000u - magnitude, bits != magnitude);
    }
    return key >= ask.low && key <= ask.high;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn find_values(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    if local < SLOTS {
        atomicStore(&found[local], select(0u, NONE, least(local)));
    }
    workgroupBarrier();

    var count = 0u;
    var first = NONE;
    var last = 0u;
    var next = NONE;
    var previous = 0u;
    let stride = groups.x * WORKGROUP_SIZE;
    for (var i = ask.start / 4u + gid.x; 4u * i < ask.stop; i += stride) {
        let x = data[i];
        for (var lane = 0u; lane < 4u; lane += 1u) {
            let k = 4u * i + lane;
            if k < ask.start || k >= ask.stop {
                continue;
            }
            var old = 0u;
            if KIND == CHANGED {
                old = before[k];
            }
            if !hit(x[lane], old) {
                continue;
            }
            let place = ask.first + k + 1u;
            count += 1u;
            first = min(first, place);
            last = max(last, place);
            if place > ask.at + 1u {
                next = min(next, place);
            } else if place < ask.at + 1u {
                previous = max(previous, place);
            }
        }
    }
    if count > 0u {
        atomicAdd(&found[COUNT], count);
        atomicMin(&found[FIRST], first);
        atomicMax(&found[LAST], last);
        atomicMin(&found[NEXT], next);
        atomicMax(&found[PREVIOUS], previous);
    }
    workgroupBarrier();

    if local < SLOTS {
        let value = atomicLoad(&found[local]);
        if local == COUNT {
            atomicAdd(&result[local], value);
        } else if least(local) {
            atomicMin(&result[local], value);
        } else {
            atomicMax(&result[local], value);
        }
    }
}
