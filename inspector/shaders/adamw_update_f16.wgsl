// AdamW with a mirror of the weights in half precision, as adamw_update otherwise.
// Two halves lie in each u32: the bytes are those of an f16 array, on devices with and without shader-f16.

@group(0) @binding(0) var<storage, read_write> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> w_f16: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(6) var<uniform> size: u32;
@group(0) @binding(7) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(8) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adamw_update_f16(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let flat = flat_id(gid, groups);
    if 4u * flat >= size {
        return;
    }
    let i = from_the_end(flat, size);
    let w0 = w[i];
    let g0 = g[i];
    let m0 = m[i];
    let v0 = v[i];
    let to = adam(w0, g0, m0, v0, grad_stats[1], hp[0], hp[1], bias, 4u * i);

    let mine = lanes_below(4u * i, size);
    let w1 = select(w0, to.w, mine);
    w[i] = w1;
    g[i] = select(g0, vec4(0.0), mine);
    m[i] = select(m0, to.m, mine);
    v[i] = select(v0, to.v, mine);
    w_f16[i] = half_bits4(w1);
}
