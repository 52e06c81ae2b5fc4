// Pixels that each cover few elements: those of one part of a lane taken into what they have already.

@group(0) @binding(4) var<storage, read_write> pixels: array<u32>;
@group(0) @binding(5) var<uniform> view: View;

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_pixels(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let p = flat_id(gid, groups);
    if p >= plane() {
        return;
    }
    let covered = under(p);
    let low = max(covered.x, part.low);
    let high = min(covered.y, part.high);
    if low >= high {
        return;
    }
    var sum = no_sum();
    var walk = walk_from(low);
    for (var i = low / 4u * 4u; i < high; i += 4u) {
        add(&sum, &walk, i, loaded(i, high), low, high);
    }
    let size = plane();
    let to = place(p);
    let before = Cell(
        bitcast<f32>(pixels[to]),
        bitcast<f32>(pixels[to + size]),
        bitcast<f32>(pixels[to + 2u * size]),
        pixels[to + 3u * size],
        pixels[to + 4u * size],
    );
    let cell = joined(before, cell_of(sum));
    pixels[to] = bitcast<u32>(cell.low);
    pixels[to + size] = bitcast<u32>(cell.high);
    pixels[to + 2u * size] = bitcast<u32>(cell.mean);
    pixels[to + 3u * size] = cell.finite;
    pixels[to + 4u * size] = cell.nonfinite;
}
