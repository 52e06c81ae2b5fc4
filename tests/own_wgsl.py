"""Kernels as an author of a training engine would hand them in: one file a set, one thread an element."""

from __future__ import annotations

from pathlib import Path

FINITE = """\
fn finite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }
"""

UPDATE = (
    FINITE
    + """\
@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32>;
@group(0) @binding(5) var<uniform> size: u32;
@group(0) @binding(6) var<uniform> hp: vec4<f32>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;

const WG = 256u;

@compute @workgroup_size(WG)
fn adamw_update(
    @builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = gid.y * groups.x * WG + gid.x;
    if (i >= size) { return; }
    let grad = grad_stats[1] * select(0.0, g[i], finite(g[i]));
    let m1 = hp.y * m[i] + (1.0 - hp.y) * grad;
    let v1 = hp.z * v[i] + (1.0 - hp.z) * (grad * grad);
    let m_hat = m1 / max(1.0 - bias.x, 1e-12);
    let v_hat = v1 / max(1.0 - bias.y, 1e-12);
    let update = hp.x * (m_hat / (sqrt(v_hat) + bias.z) + hp.w * w[i]);
    if (finite(update)) { w[i] = w[i] - update; }
    m[i] = m1;
    v[i] = v1;
    g[i] = 0.0;
}
"""
)

NORM = """\
@group(0) @binding(0) var<storage, read> grads: array<f32>;
@group(0) @binding(1) var<storage, read_write> sum: atomic<u32>;
@group(0) @binding(2) var<uniform> count: u32;
var<workgroup> shares: array<f32, 256>;

fn usable(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }

@compute @workgroup_size(256)
fn reduce_norm_sq(
    @builtin(global_invocation_id) gid: vec3<u32>, @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = gid.y * groups.x * 256u + gid.x;
    shares[local] = 0.0;
    if (i < count && usable(grads[i])) { shares[local] = grads[i] * grads[i]; }
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if (local < half) { shares[local] += shares[local + half]; }
        workgroupBarrier();
    }
    if (local == 0u) {
        var old = atomicLoad(&sum);
        loop {
            let swap = atomicCompareExchangeWeak(&sum, old, bitcast<u32>(bitcast<f32>(old) + shares[0]));
            if (swap.exchanged) { break; }
            old = swap.old_value;
        }
    }
}
"""

FINALIZE = """\
@group(0) @binding(0) var<storage, read> norm_sq: array<f32>;
@group(0) @binding(1) var<storage, read_write> stats: array<f32>;
@group(0) @binding(2) var<uniform> limit: f32;

@compute @workgroup_size(1)
fn finalize_grad_stats() {
    stats[0] = sqrt(norm_sq[0]);
    stats[1] = min(1.0, limit / max(stats[0], 1e-6));
}
"""

UPDATE_F16 = UPDATE.replace("@binding(7)", "@binding(8)").replace("@binding(6)", "@binding(7)").replace(
    "@binding(5)", "@binding(6)"
).replace("@binding(4)", "@binding(5)").replace("adamw_update", "adamw_update_f16").replace(
    "    g[i] = 0.0;\n", "    g[i] = 0.0;\n    w_f16[i] = f16(w[i]);\n"
)  # fmt: skip
UPDATE_F16 = f"enable f16;\n@group(0) @binding(4) var<storage, read_write> w_f16: array<f16>;\n{UPDATE_F16}"

SCALE = (
    FINITE
    + """\
@group(0) @binding(0) var<storage, read_write> data: array<f32>;
@group(0) @binding(1) var<storage, read> grad_stats: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
@compute @workgroup_size(64)
fn scale(@builtin(global_invocation_id) gid: vec3<u32>) {
    if (gid.x < n) { data[gid.x] = grad_stats[1] * select(0.0, data[gid.x], finite(data[gid.x])); }
}
"""
)

FILL_ZERO = """\
@group(0) @binding(0) var<storage, read_write> data: array<vec4<f32>>;
@compute @workgroup_size(8, 8)
fn fill_zero(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = group.x * 64u + local;
    if (i < arrayLength(&data)) { data[i] = vec4(0.0); }
}
"""


def write(folder: Path, **files: str) -> Path:
    """Write NAME.wgsl for each; the folder."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.wgsl").write_text(text, encoding="utf-8")
    return folder
