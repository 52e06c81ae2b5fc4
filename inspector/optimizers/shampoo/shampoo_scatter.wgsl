// Stacked blocks back to where they lie in a lane.

@group(0) @binding(0) var<storage, read> stacked: array<f32>;
@group(0) @binding(1) var<storage, read_write> data: array<f32>;
@group(0) @binding(2) var<storage, read> blocks: array<Block>;
@group(0) @binding(3) var<uniform> height: u32;
@group(0) @binding(4) var<uniform> width: u32;
@group(0) @binding(5) var<uniform> size: u32;

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_scatter(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let at = flat_id(gid, groups);
    if at >= height * width {
        return;
    }
    let to = cell_of(blocks[gid.z], at, width);
    if to.inside && to.place < size {
        data[to.place] = stacked[gid.z * height * width + at];
    }
}
