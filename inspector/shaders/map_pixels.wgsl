// A stretch of a mega-buffer reduced to pixels: under each pixel the element of largest magnitude, with its
// sign, and how many elements are not finite. One thread a pixel; pixels are numbered down each column.

@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read> before: array<f32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<vec2<f32>>;
@group(0) @binding(3) var<uniform> view: View;

override CHANGE: bool = false;

struct View {
    first: u32,        // the mega-buffer element that data[0] is
    n: u32,            // elements bound
    start: u32,        // element at the left edge, whole part
    start_part: f32,   // and the rest of it
    elements_per_pixel: f32,
    width: u32,
    height: u32,
}

// Elements from the left edge to the top of row `y` of column `x`. Rounding keeps the order, and the end of
// a pixel is computed as the start of the next, so pixels neither overlap nor miss an element.
fn offset_of(x: u32, y: u32) -> u32 {
    var at = f32(x) + f32(y) / f32(view.height);
    if y == view.height {
        at = f32(x + 1u);
    }
    return u32(floor(view.start_part + at * view.elements_per_pixel));
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_pixels(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let pixel = flat_id(gid, groups);
    if pixel >= view.width * view.height {
        return;
    }
    let x = pixel / view.height;
    let y = pixel % view.height;
    var low: u32;
    var high: u32;
    if view.elements_per_pixel <= 1.0 {
        low = u32(floor(view.start_part + (f32(x) + 0.5) * view.elements_per_pixel));
        high = low + 1u;
    } else {
        low = offset_of(x, y);
        high = max(offset_of(x, y + 1u), low + 1u);
    }
    low = max(low + view.start, view.first);
    high = min(high + view.start, view.first + view.n);
    if low >= high {
        return;
    }

    var best = pixels[pixel].x;
    var bad = pixels[pixel].y;
    for (var i = low - view.first; i < high - view.first; i += 1u) {
        var value = data[i];
        if !is_finite(value) {
            bad += 1.0;
            continue;
        }
        if CHANGE {
            value -= before[i];
            if !is_finite(value) {
                continue;
            }
        }
        if abs(value) > abs(best) {
            best = value;
        }
    }
    pixels[pixel] = vec2(best, bad);
}
