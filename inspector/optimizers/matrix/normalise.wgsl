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

var<workgroup> divisor: f32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn normalise(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    if local == 0u {
        var sum = 0.0;
        for (var i = 0u; i < PARTS; i++) {
            sum += squares[gid.z * PARTS + i];
        }
        divisor = sqrt(sum) + EPS;
    }
    workgroupBarrier();
    let at = flat_id(gid, groups);
    let width = (columns + 3u) / 4u * 4u;
    if at >= rows * width {
        return;
    }
    let column = at % width;
    let element = at / width * columns + column;
    let to = gid.z * rows * width + at;
    if column >= columns {
        stacked[to] = 0.0;
    } else if element >= first && element - first < size {
        stacked[to] = data[gid.z * apart + (element - first)] / divisor;
    }
}
