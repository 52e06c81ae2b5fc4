// A workgroup a param: RMS(u) from the sums of its tiles, what u is divided by where that is above d, and what the
// update is multiplied by in each of its matrices, sqrt(mean of row_var) / max(1, RMS(u)/d).
// bias: 1-beta2_t, beta2_t, eps1, d.

struct Whole {
    row_at: u32,
    rows: u32,
    slices: u32,
    parts_at: u32,
    slice_parts: u32,
    scale_at: u32,
    elements: u32,
    unused: u32,
}

@group(0) @binding(0) var<storage, read> row_var: array<f32>;
@group(0) @binding(1) var<storage, read> square_parts: array<f32>;
// Of each param RMS(u), what u is divided by, then a factor for each of its matrices.
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;
@group(0) @binding(3) var<storage, read> params: array<Whole>;
@group(0) @binding(4) var<uniform> bias: vec4<f32>;

// So many matrices and more go a thread each.
const MANY = 64u;

fn four_rows(at: u32, step: u32) -> vec4<f32> {
    return vec4(row_var[at], row_var[at + step], row_var[at + 2u * step], row_var[at + 3u * step]);
}

fn sum_rows(first: u32, count: u32, from_: u32, step: u32) -> f32 {
    var sum = vec4(0.0);
    var i = from_;
    // Many on their way at once: none waits for another.
    for (; i + 15u * step < count; i += 16u * step) {
        let at = first + i;
        sum += (four_rows(at, step) + four_rows(at + 4u * step, step))
            + (four_rows(at + 8u * step, step) + four_rows(at + 12u * step, step));
    }
    for (; i + 3u * step < count; i += 4u * step) {
        sum += four_rows(first + i, step);
    }
    for (; i < count; i += step) {
        sum.x += row_var[first + i];
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

fn sum_parts(first: u32, count: u32, from_: u32, step: u32) -> f32 {
    var sum = vec4(0.0);
    var i = from_;
    for (; i + 3u * step < count; i += 4u * step) {
        let at = first + i;
        sum += vec4(square_parts[at], square_parts[at + step], square_parts[at + 2u * step], square_parts[at + 3u * step]);
    }
    for (; i < count; i += step) {
        sum.x += square_parts[first + i];
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

// A vector has no rows, and nothing to be divided by their mean.
fn mean_of(sum: f32, rows: u32) -> f32 {
    return select(sum / f32(rows), 1.0, rows == 0u);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_clip(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group_number(group, groups);
    if number >= arrayLength(&params) {
        return;
    }
    let whole = params[number];
    let factors_at = whole.scale_at + 2u;
    var squares = 0.0;
    if whole.slices < MANY {
        for (var s = 0u; s < whole.slices; s++) {
            let rows = total(thread, sum_rows(whole.row_at + s * whole.rows, whole.rows, thread, WORKGROUP_SIZE));
            let mean = mean_of(rows, whole.rows);
            let parts = sum_parts(whole.parts_at + s * whole.slice_parts, whole.slice_parts, thread, WORKGROUP_SIZE);
            squares += mean * parts;
            if thread == 0u {
                scales[factors_at + s] = sqrt(mean);
            }
        }
    } else {
        for (var s = thread; s < whole.slices; s += WORKGROUP_SIZE) {
            let mean = mean_of(sum_rows(whole.row_at + s * whole.rows, whole.rows, 0u, 1u), whole.rows);
            squares += mean * sum_parts(whole.parts_at + s * whole.slice_parts, whole.slice_parts, 0u, 1u);
            scales[factors_at + s] = sqrt(mean);
        }
    }
    let rms = sqrt(total(thread, squares) / f32(whole.elements));
    let divisor = max(1.0, rms / bias.w);
    if thread == 0u {
        scales[whole.scale_at] = rms;
        scales[whole.scale_at + 1u] = divisor;
    }
    storageBarrier();
    workgroupBarrier();
    for (var s = thread; s < whole.slices; s += WORKGROUP_SIZE) {
        scales[factors_at + s] /= divisor;
    }
}
