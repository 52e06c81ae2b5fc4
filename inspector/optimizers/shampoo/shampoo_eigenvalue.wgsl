// The largest eigenvalue of each factor by power iteration, from below, and its Frobenius norm, which is no smaller: a
// factor a workgroup. The same numbers meet in the same order on every run.

override ITERATIONS: u32 = 20u;

@group(0) @binding(0) var<storage, read> factor: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> scales: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> side: u32;

const MOST = 1024u;
// Iterations from one time that x is made a unit vector to the next: its squares stay in the range of float32.
const EACH = 4u;
const LEAST_NORMAL = 1.17549435e-38;

var<workgroup> x: array<f32, MOST>;
// What parts of the rows add to each column, MOST columns in all of them.
var<workgroup> parts: array<vec4<f32>, WORKGROUP_SIZE>;
var<workgroup> given: array<f32, WORKGROUP_SIZE>;
var<workgroup> sixteenths: array<f32, 16>;

// A number from -1 to 1 that follows no pattern.
fn start(i: u32) -> f32 {
    return f32(((i + 1u) * 2654435761u) >> 24u) / 128.0 - 0.99609375;
}

// Known to all threads. What is given is read before the second barrier, sixteenths before the first one of the next call.
fn greatest(thread: u32, value: f32) -> f32 {
    given[thread] = value;
    workgroupBarrier();
    if thread < 16u {
        var most = given[16u * thread];
        for (var i = 1u; i < 16u; i++) {
            most = max(most, given[16u * thread + i]);
        }
        sixteenths[thread] = most;
    }
    workgroupBarrier();
    var most = sixteenths[0];
    for (var i = 1u; i < 16u; i++) {
        most = max(most, sixteenths[i]);
    }
    return most;
}

fn total(thread: u32, value: f32) -> f32 {
    given[thread] = value;
    workgroupBarrier();
    if thread < 16u {
        var sum = 0.0;
        for (var i = 0u; i < 16u; i++) {
            sum += given[16u * thread + i];
        }
        sixteenths[thread] = sum;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        sum += sixteenths[i];
    }
    return sum;
}

// Four elements of factor * x, known to the first side / 4 threads: a factor is symmetric, so that its columns do for rows.
fn times_x(thread: u32, base: u32, across: u32, scale: f32) -> vec4<f32> {
    let shares = WORKGROUP_SIZE / across;
    let share = thread / across;
    var sum = vec4(0.0);
    if share < shares {
        for (var row = share; row < side; row += shares) {
            sum += x[row] * (scale * factor[base + row * across + thread % across]);
        }
    }
    parts[thread] = sum;
    workgroupBarrier();
    var whole = vec4(0.0);
    if thread < across {
        for (var k = 0u; k < shares; k++) {
            whole += parts[k * across + thread];
        }
    }
    workgroupBarrier();
    return whole;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn shampoo_eigenvalue(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let across = side / 4u;
    let base = group.z * side * across;
    // By its largest element, so that no square leaves the range of float32.
    var largest_here = 0.0;
    for (var i = thread; i < side * across; i += WORKGROUP_SIZE) {
        let four = abs(factor[base + i]);
        largest_here = max(largest_here, max(max(four.x, four.y), max(four.z, four.w)));
    }
    let peak = greatest(thread, largest_here);
    // Below the least normal number the quotient may be infinite; such a factor counts as one without any gradient.
    let scale = select(0.0, 1.0 / peak, peak >= LEAST_NORMAL);
    var squares = 0.0;
    for (var i = thread; i < side * across; i += WORKGROUP_SIZE) {
        let four = scale * factor[base + i];
        squares += dot(four, four);
    }
    let norm = peak * sqrt(total(thread, squares));
    for (var i = thread; i < side; i += WORKGROUP_SIZE) {
        x[i] = start(i);
    }
    workgroupBarrier();
    for (var k = 1u; k <= ITERATIONS; k++) {
        let y = times_x(thread, base, across, scale);
        // No element is over 1 and the largest eigenvalue no less, so that x grows up to a thousandfold an iteration.
        var size = 1.0;
        if k % EACH == 0u || k == ITERATIONS {
            size = sqrt(total(thread, dot(y, y)));
        }
        if thread < across {
            for (var i = 0u; i < 4u; i++) {
                x[4u * thread + i] = select(0.0, y[i] / size, size != 0.0);
            }
        }
        workgroupBarrier();
    }
    let y = times_x(thread, base, across, scale);
    var product = 0.0;
    if thread < across {
        let at = 4u * thread;
        product = dot(y, vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]));
    }
    let largest = peak * total(thread, product);
    if thread == 0u {
        scales[group.z] = vec2(largest, norm);
    }
}
