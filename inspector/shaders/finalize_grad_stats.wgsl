// gradNorm and clipScale from the sum of squares.

@group(0) @binding(0) var<storage, read> norm_sq: array<f32, 1>;
@group(0) @binding(1) var<storage, read_write> grad_stats: array<f32, 2>;
@group(0) @binding(2) var<uniform> max_grad_norm: f32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn finalize_grad_stats(@builtin(local_invocation_index) local: u32) {
    if local != 0u {
        return;
    }
    let grad_norm = sqrt(norm_sq[0]);
    grad_stats[0] = grad_norm;
    grad_stats[1] = min(1.0, max_grad_norm / max(grad_norm, 1e-6));
}
