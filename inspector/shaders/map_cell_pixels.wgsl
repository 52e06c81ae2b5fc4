// Pixels that each cover whole cells of one level.

@group(0) @binding(0) var<storage, read> cells: array<Cell>;
@group(0) @binding(1) var<storage, read_write> pixels: array<u32>;
@group(0) @binding(2) var<uniform> view: View;

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_cell_pixels(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let p = flat_id(gid, groups);
    if p >= plane() {
        return;
    }
    let covered = under(p);
    var cell: Cell;
    if covered.x < covered.y {
        // The last cell of all may be short of elements.
        let stop = (covered.y + view.cell - 1u) / view.cell;
        for (var i = covered.x / view.cell; i < stop; i += 1u) {
            cell = joined(cell, cells[view.at + i]);
        }
    }
    let size = plane();
    let to = place(p);
    pixels[to] = bitcast<u32>(cell.low);
    pixels[to + size] = bitcast<u32>(cell.high);
    pixels[to + 2u * size] = bitcast<u32>(cell.mean);
    pixels[to + 3u * size] = cell.finite;
    pixels[to + 4u * size] = cell.nonfinite;
}
