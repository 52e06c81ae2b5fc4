// Where the coupled iteration begins: coupled = z * (factor + RIDGE * largest eigenvalue * I) with eigenvalues up to 2.5, and
// root = z^(1/4) * I, so that root^-4 * coupled stays factor + ridge. The root is that of the average corrected for
// its start at 0: of the factor over 1-beta2^t.

override RIDGE: f32 = 1e-4;
override NOTHING: f32 = 1e-30;

@group(0) @binding(0) var<storage, read> factor: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> scales: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> coupled: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> root: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> side: u32;
@group(0) @binding(5) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_start(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let across = side / 4u;
    let at = flat_id(gid, groups);
    if at >= side * across {
        return;
    }
    let one = select(vec4(0.0), vec4(1.0), vec4(4u * (at % across)) + vec4(0u, 1u, 2u, 3u) == vec4(at / across));
    let i = gid.z * side * across + at;
    let largest = scales[gid.z].x;
    if is_finite(largest) && largest < NOTHING {
        // No gradient has been seen: nothing to divide by.
        coupled[i] = one;
        root[i] = one;
        return;
    }
    let ridge = RIDGE * largest;
    let z = 2.5 / (scales[gid.z].y + ridge);
    var correction = 1.0;
    if !SUMMED {
        correction = select(max(1.0 - bias.y, 1e-12), 1.0 / bias.y, PRECISE);
    }
    coupled[i] = z * (factor[i] + ridge * one);
    root[i] = sqrt(sqrt(z * correction)) * one;
}
