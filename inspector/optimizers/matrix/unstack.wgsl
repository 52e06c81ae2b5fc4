// Stacked matrices, times SCALE, back to where they lie `apart` elements from each other in a lane. Of a matrix that
// can be bound in pieces only, `data` has the `size` elements from `first` on.

@group(0) @binding(0) var<storage, read> stacked: array<f32>;
@group(0) @binding(1) var<storage, read_write> data: array<f32>;
@group(0) @binding(2) var<uniform> rows: u32;
@group(0) @binding(3) var<uniform> columns: u32;
@group(0) @binding(4) var<uniform> apart: u32;
@group(0) @binding(5) var<uniform> first: u32;
@group(0) @binding(6) var<uniform> size: u32;

override SCALE: f32 = 1.0;

@compute @workgroup_size(WORKGROUP_SIZE)
fn unstack(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = flat_id(gid, groups);
    if at >= size {
        return;
    }
    let width = (columns + 3u) / 4u * 4u;
    let element = first + at;
    let row = gid.z * rows + element / columns;
    data[gid.z * apart + at] = SCALE * stacked[row * width + element % columns];
}
