// Sums of squares of matrices that lie `apart` elements from each other in a lane: z of the grid counts them, and each
// workgroup writes the sum of its share. The same elements meet in the same order on every run.

@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
@group(0) @binding(2) var<uniform> size: u32;
@group(0) @binding(3) var<uniform> apart: u32;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn sum_squares(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let base = group.z * apart;
    let stride = groups.x * WORKGROUP_SIZE;
    var sum = vec4(0.0);
    var at = group.x * WORKGROUP_SIZE + local;
    while at + 3u * stride < size {
        let from_ = base + at;
        let x = vec4(
            data[from_],
            data[from_ + stride],
            data[from_ + 2u * stride],
            data[from_ + 3u * stride],
        );
        sum += x * x;
        at += 4u * stride;
    }
    while at < size {
        let x = data[base + at];
        sum.x += x * x;
        at += stride;
    }
    sums[local] = (sum.x + sum.y) + (sum.z + sum.w);
    workgroupBarrier();
    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half >>= 1u) {
        if local < half {
            sums[local] += sums[local + half];
        }
        workgroupBarrier();
    }
    if local == 0u {
        result[group.z * groups.x + group.x] = sums[0];
    }
}
