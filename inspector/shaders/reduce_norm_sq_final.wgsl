// Between the two passes, where there are more partial sums than one binding holds: one workgroup adds up those of one.
// Before a finalize_grad_stats that takes one number: all of them.

@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: f32;
@group(0) @binding(2) var<uniform> n: u32;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn reduce_norm_sq_final(@builtin(local_invocation_index) local: u32) {
    var sum = 0.0;
    for (var i = local; i < n; i += WORKGROUP_SIZE) {
        sum += data[i];
    }
    sums[local] = sum;
    workgroupBarrier();

    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half >>= 1u) {
        if local < half {
            sums[local] += sums[local + half];
        }
        workgroupBarrier();
    }
    if local == 0u {
        result = sums[0];
    }
}
