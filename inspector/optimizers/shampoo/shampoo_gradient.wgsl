// The gradients of blocks of matrices, clipped, stacked with zeros beyond the edges of their matrix. z of the grid counts
// blocks. Of a block that can be bound in pieces only, `g` has the `size` elements that the table counts from.

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(2) var<storage, read_write> stacked: array<f32>;
@group(0) @binding(3) var<storage, read> blocks: array<Block>;
@group(0) @binding(4) var<uniform> height: u32;
@group(0) @binding(5) var<uniform> width: u32;
@group(0) @binding(6) var<uniform> size: u32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_gradient(
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
        stacked[to] = select(1.0, grad_stats[1], FUSED) * select(0.0, g[cell.place], is_finite(g[cell.place]));
    }
}
