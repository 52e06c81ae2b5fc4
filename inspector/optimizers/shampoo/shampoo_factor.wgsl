// A Kronecker factor of each block after a gradient: its average, or with SUMMED its sum, of G * transpose(G).
// hp: -, -, beta2, -. bias, where PRECISE: -, -, -, 1-beta2.

@group(0) @binding(0) var<storage, read_write> factor: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gram: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> size: u32;
@group(0) @binding(3) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(4) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_factor(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i >= size {
        return;
    }
    let keep = select(hp[0].z, 1.0, SUMMED);
    let add = select(select(1.0 - hp[0].z, bias.w, PRECISE), 1.0, SUMMED);
    factor[i] = keep * factor[i] + add * gram[i];
}
