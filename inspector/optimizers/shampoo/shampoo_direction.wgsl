// m_hat of blocks of matrices after the step, stacked as their gradients are; m stays as it is until the update.

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> m: array<f32>;
@group(0) @binding(2) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(3) var<storage, read_write> stacked: array<f32>;
@group(0) @binding(4) var<storage, read> blocks: array<Block>;
@group(0) @binding(5) var<uniform> height: u32;
@group(0) @binding(6) var<uniform> width: u32;
@group(0) @binding(7) var<uniform> size: u32;
@group(0) @binding(8) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(9) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_direction(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let at = flat_id(gid, groups);
    if at >= height * width {
        return;
    }
    let to = gid.z * height * width + at;
    let cell = cell_of(blocks[gid.z], at, width);
    if !cell.inside {
        stacked[to] = 0.0;
        return;
    }
    if cell.place < size {
        let zero = vec4(0.0);
        stacked[to] = updated(zero, vec4(g[cell.place]), vec4(m[cell.place]), zero, grad_stats[1], hp[0], hp[1], bias, 0u).m_hat.x;
    }
}
