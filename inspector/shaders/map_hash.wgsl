// A hash of 64 bits of each cell of a lane, added to what a part before has put there: of bits and places, in any
// order. Two contents of a cell get the same hash about once in 10^19 times.

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> ages: array<Age>;
@group(0) @binding(2) var<uniform> part: HashPart;

override CELL: u32 = 64u;
const ELEMENTS = 16u;

struct HashPart {
    first: u32,
    low: u32,
    high: u32,
}

var<workgroup> found: array<vec2<u32>, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_hash(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let threads = CELL / ELEMENTS;
    let tile = group.y * groups.x + group.x;
    let cell = part.low / CELL + tile * (WORKGROUP_SIZE / threads) + local / threads;
    let start = cell * CELL;
    var hash = vec2(0u);
    if start < part.high {
        for (var j = 0u; j < ELEMENTS / 4u; j += 1u) {
            let i = start + 4u * (j * threads + local % threads);
            if i < part.first || i + 4u <= part.low || i >= part.high {
                continue;
            }
            let bits = data[(i - part.first) / 4u];
            for (var k = 0u; k < 4u; k += 1u) {
                if i + k >= part.low && i + k < part.high {
                    hash += vec2(mixed(bits[k] ^ mixed(i + k)), mixed(bits[k] + mixed(~(i + k))));
                }
            }
        }
    }
    found[local] = hash;
    workgroupBarrier();
    if local % threads == 0u && start < part.high {
        var sum = ages[cell].now;
        for (var t = 0u; t < threads; t += 1u) {
            sum += found[local + t];
        }
        ages[cell].now = sum;
    }
}
