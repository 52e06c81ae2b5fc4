// What an iteration multiplies with, less I: turn = 0.25 * (I - coupled), which tends to 0.

@group(0) @binding(0) var<storage, read> coupled: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> turn: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> side: u32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_turn(
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
    turn[i] = 0.25 * (one - coupled[i]);
}
