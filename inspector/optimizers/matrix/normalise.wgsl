// Matrices that lie `apart` elements from each other in a lane, stacked with their rows padded to whole vec4s, each
// divided by its Frobenius norm plus EPS. The norm is the root of the sum of PARTS sums of squares. Of a matrix that
// can be bound in pieces only, `data` has the `size` elements from `first` on.

@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read> squares: array<f32>;
@group(0) @binding(2) var<storage, read_write> stacked: array<f32>;
@group(0) @binding(3) var<uniform> rows: u32;
@group(0) @binding(4) var<uniform> columns: u32;
@group(0) @binding(5) var<uniform> apart: u32;
@group(0) @binding(6) var<uniform> first: u32;
@group(0) @binding(7) var<uniform> size: u32;

override PARTS: u32 = 1u;
override EPS: f32 = 1e-7;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn normalise(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    var sum = 0.0;
    for (var i = local; i < PARTS; i += WORKGROUP_SIZE) {
        sum += squares[gid.z * PARTS + i];
    }
    sums[local] = sum;
    workgroupBarrier();
    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half >>= 1u) {
        if local < half {
            sums[local] += sums[local + half];
        }
        workgroupBarrier();
    }
    let divisor = sqrt(sums[0]) + EPS;

    // Four elements of a row a thread.
    let at = flat_id(gid, groups);
    let quarters = (columns + 3u) / 4u;
    if at >= rows * quarters {
        return;
    }
    let row = at / quarters;
    let column = 4u * (at % quarters);
    let element = row * columns + column;
    let to = 4u * (gid.z * rows * quarters + at);
    for (var i = 0u; i < 4u; i++) {
        if column + i >= columns {
            stacked[to + i] = 0.0;
        } else if element + i >= first && element + i - first < size {
            stacked[to + i] = data[gid.z * apart + (element + i - first)] / divisor;
        }
    }
}
