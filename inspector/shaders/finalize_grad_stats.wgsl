// gradNorm and clipScale from the sum of squares, which comes as one number or in parts that one workgroup adds up.
// The same parts meet in the same order on every run, so the bits are the same too.

@group(0) @binding(0) var<storage, read> norm_sq: array<f32>;
@group(0) @binding(1) var<storage, read_write> grad_stats: array<f32, 2>;
@group(0) @binding(2) var<uniform> max_grad_norm: f32;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn finalize_grad_stats(@builtin(local_invocation_index) local: u32) {
    var sum = 0.0;
    for (var i = local; i < arrayLength(&norm_sq); i += WORKGROUP_SIZE) {
        sum += norm_sq[i];
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
        let grad_norm = sqrt(sums[0]);
        grad_stats[0] = grad_norm;
        grad_stats[1] = min(1.0, max_grad_norm / max(grad_norm, 1e-6));
    }
}
