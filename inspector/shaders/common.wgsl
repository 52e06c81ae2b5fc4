// Shared by the optimizer kernels; placed before each of them.

const WORKGROUP_SIZE = 256u;
const EXPONENT_MASK = 0x7f800000u;

// Finite means an exponent that is not all ones. Tested on the bits: a compiler may assume that no NaN
// exists and drop a comparison such as x != x.
fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & EXPONENT_MASK) != EXPONENT_MASK;
}

fn is_finite4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4(EXPONENT_MASK)) != vec4(EXPONENT_MASK);
}

// A grid beyond the limit of one dimension has several rows.
fn flat_id(gid: vec3<u32>, groups: vec3<u32>) -> u32 {
    return gid.y * groups.x * WORKGROUP_SIZE + gid.x;
}

// The lanes of a vec4 that lie below `size`, the vec4 beginning at element `first`.
fn lanes_below(first: u32, size: u32) -> vec4<bool> {
    return vec4(first) + vec4(0u, 1u, 2u, 3u) < vec4(size);
}
