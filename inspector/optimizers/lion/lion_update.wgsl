// Lion with the clip scale applied to the gradient and the gradient set to zero, four elements a thread.
// Not FUSED: the gradient comes clipped and is left to a pass of its own.

@group(0) @binding(0) var<storage, read_write> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(4) var<uniform> size: u32;
@group(0) @binding(5) var<uniform> hp: vec4<f32>;
@group(0) @binding(6) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn lion_update(
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
    let to = updated(w0, g0, m0, vec4(0.0), grad_stats[1], hp, vec4(0.0), bias, 4u * i);

    // What lies beyond the size belongs to somebody else, or is padding that has to stay zero.
    let mine = lanes_below(4u * i, size);
    w[i] = select(w0, to.w, mine);
    if FUSED {
        g[i] = select(g0, vec4(0.0), mine);
    }
    m[i] = select(m0, to.m, mine);
}
