// A rectangle of a matrix reduced to pixels: under each pixel the element of largest magnitude, with its sign, and how
// many elements are not finite. One thread a pixel, row by row; what was found in other pieces is added to.

@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read> before: array<f32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<vec2<f32>>;
@group(0) @binding(3) var<uniform> view: View;

override CHANGE: bool = false;

struct View {
    first: u32,    // the element of the matrix, flat, that data[skip] is
    n: u32,        // elements from there on
    skip: u32,
    rows: u32,
    columns: u32,
    width: u32,
    height: u32,
    left: u32,     // of the rectangle, whole part
    top: u32,
    left_part: f32,
    top_part: f32,
    across: f32,   // columns a pixel, and rows
    down: f32,
}

// The elements along one axis under pixel `at`: what begins a pixel ends the one before, so none is missed.
fn span(at: u32, start: u32, part: f32, each: f32, limit: u32) -> vec2<u32> {
    if each <= 1.0 {
        let one = start + u32(floor(part + (f32(at) + 0.5) * each));
        return vec2(one, min(one + 1u, limit));
    }
    let low = u32(floor(part + f32(at) * each));
    let high = max(u32(floor(part + f32(at + 1u) * each)), low + 1u);
    return vec2(start + low, min(start + high, limit));
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn matrix_pixels(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let pixel = flat_id(gid, groups);
    if pixel >= view.width * view.height {
        return;
    }
    let x = span(pixel % view.width, view.left, view.left_part, view.across, view.columns);
    let y = span(pixel / view.width, view.top, view.top_part, view.down, view.rows);
    if x.x >= x.y || y.x >= y.y {
        return;
    }
    let stop = view.first + view.n;
    // Rows that this piece has nothing of are not looked at.
    let low_row = max(y.x, view.first / view.columns);
    let high_row = min(y.y, (stop + view.columns - 1u) / view.columns);

    var best = pixels[pixel].x;
    var bad = pixels[pixel].y;
    for (var row = low_row; row < high_row; row += 1u) {
        let low = max(row * view.columns + x.x, view.first);
        let high = min(row * view.columns + x.y, stop);
        for (var i = low; i < high; i += 1u) {
            let k = i - view.first + view.skip;
            var value = data[k];
            if !is_finite(value) {
                bad += 1.0;
                continue;
            }
            if CHANGE {
                value -= before[k];
                if !is_finite(value) {
                    continue;
                }
            }
            if abs(value) > abs(best) {
                best = value;
            }
        }
    }
    pixels[pixel] = vec2(best, bad);
}
