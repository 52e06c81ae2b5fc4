// The Nesterov directions of matrices that lie `apart` elements from each other in the lanes, stacked with their rows padded
// to whole vec4s, each divided by its Frobenius norm plus EPS: all first floats, then all second ones. They are worked out
// anew from g and m, since v's place has only the first float of them; the iterations raise what rounding leaves where a
// matrix has no rank by up to 485. The norm is the root of the sum of PARTS sums of squares. Of a matrix that can be bound
// in pieces only, g and m have the `size` elements from `first` on.

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> m: array<f32>;
@group(0) @binding(2) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(3) var<storage, read> squares: array<f32>;
@group(0) @binding(4) var<storage, read_write> stacked: array<f32>;
@group(0) @binding(5) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(6) var<uniform> rows: u32;
@group(0) @binding(7) var<uniform> columns: u32;
@group(0) @binding(8) var<uniform> apart: u32;
@group(0) @binding(9) var<uniform> first: u32;
@group(0) @binding(10) var<uniform> size: u32;

override PARTS: u32 = 1u;
override EPS: f32 = 1e-7;

// As `updated` has it, but for the rounding.
fn direction(g: vec4<f32>, m: vec4<f32>) -> Two {
    let momentum = hp[0].y;
    let rest = select(1.0 - momentum, hp[1].x, PRECISE);
    let finite = Two(select(vec4(0.0), g, is_finite4(g)), vec4(0.0));
    let grad = scaled(settled(scaled(finite, grad_stats[1])), rest);
    let after = settled(added(scaled(Two(m, vec4(0.0)), momentum), grad));
    return settled(added(scaled(after, momentum), grad));
}

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn normalise(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    var sum = 0.0;
    for (var i = local; i < PARTS; i += WORKGROUP_SIZE) {
        sum += squares[gid.z * PARTS + i];
    }
    sums[local] = sum;
    workgroupBarrier();
    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half >>= 1u) {
        if local < half {
            sums[local] += sums[local + half];
        }
        workgroupBarrier();
    }
    let divisor = sqrt(sums[0]) + EPS;

    // Four elements of a row a thread.
    let at = flat_id(gid, groups);
    let quarters = (columns + 3u) / 4u;
    if at >= rows * quarters {
        return;
    }
    let row = at / quarters;
    let column = 4u * (at % quarters);
    let element = row * columns + column;
    // What is not here is another piece's, or padding.
    var here = vec4(false);
    var gradients = vec4(0.0);
    var momenta = vec4(0.0);
    for (var i = 0u; i < 4u; i++) {
        here[i] = column + i < columns && element + i >= first && element + i - first < size;
        if here[i] {
            gradients[i] = g[gid.z * apart + (element + i - first)];
            momenta[i] = m[gid.z * apart + (element + i - first)];
        }
    }
    let x = divided(direction(gradients, momenta), divisor);
    let to = 4u * (gid.z * rows * quarters + at);
    let second = 4u * groups.z * rows * quarters;
    for (var i = 0u; i < 4u; i++) {
        if here[i] || column + i >= columns {
            stacked[to + i] = select(0.0, x.high[i], here[i]);
            stacked[to + second + i] = select(0.0, x.low[i], here[i]);
        }
    }
}
