// The decay that each element receives, added up step by step right before its update (`add_decay`), and the sums in bins
// of the RMS gradient against the share of the decay that arrived (`bin_decay`).

struct Settings {
    hp: vec4<f32>,
    exact: vec4<f32>,
    bias: vec4<f32>,
    grid: vec4<f32>,     // start and width of bins, in octaves: x0, dx, y0, dy
    size: u32,
    steps: f32,
}

@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32, 2>;
// An element: the part of m that comes from decay, what was taken off w because of it, what decoupled decay takes off, and
// the sum of the squares of the gradient.
@group(0) @binding(5) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> settings: Settings;
@group(0) @binding(7) var<storage, read_write> bins: array<atomic<u32>>;

const X_BINS = 128u;
const Y_BINS = 96u;
const UNDECAYED = X_BINS * Y_BINS;
const SILENT = UNDECAYED + 1u;
const REVERSED = UNDECAYED + 2u;
const OUTSIDE = UNDECAYED + 3u;

@compute @workgroup_size(WORKGROUP_SIZE)
fn add_decay(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i >= settings.size {
        return;
    }
    let w0 = w[i];
    let g0 = g[i];
    let hp = settings.hp;
    let to = adam(w0, g0, m[i], v[i], grad_stats[1], hp, settings.exact, settings.bias, 0u);
    let data = select(1.0, grad_stats[1], FUSED) * select(vec4(0.0), g0, is_finite4(g0));
    let kept = is_finite4(to.change);
    let rest = select(1.0 - hp.y, settings.exact.x, PRECISE);
    let rate = select(hp.x / max(1.0 - settings.bias.x, 1e-12), settings.exact.z, PRECISE);
    for (var k = 0u; k < 4u; k++) {
        let at = 4u * i + k;
        if at < settings.size {
            var sum = sums[at];
            sum.x = hp.y * sum.x + rest * to.decay[k];
            let decoupled = hp.x * to.decay[k];
            var received = decoupled;
            if L2 {
                received = rate * sum.x / to.denominator[k];
            }
            // Where the update is not finite, w stays as it is.
            sum.y += select(0.0, received, kept[k]);
            sum.z += select(0.0, decoupled, kept[k]);
            sum.w += data[k] * data[k];
            sums[at] = sum;
        }
    }
}

// The bin of one element, or why it is in none.
fn bin_of(sum: vec4<f32>) -> u32 {
    if !is_finite(sum.y) || !is_finite(sum.z) || sum.y == 0.0 || sum.z == 0.0 {
        return UNDECAYED;
    }
    if !is_finite(sum.w) || sum.w == 0.0 {
        return SILENT;
    }
    if (sum.y < 0.0) != (sum.z < 0.0) {
        return REVERSED;
    }
    // The logarithms apart: a quotient may overflow or vanish where the share in octaves does not.
    let x = 0.5 * (log2(sum.w) - log2(settings.steps));
    let share = sum.y / sum.z;
    let y = select(log2(abs(sum.y)) - log2(abs(sum.z)), log2(share), is_finite(share) && share > 1e-37);
    let column = floor((x - settings.grid.x) / settings.grid.y);
    let row = floor((y - settings.grid.z) / settings.grid.w);
    if column < 0.0 || column >= f32(X_BINS) || row < 0.0 || row >= f32(Y_BINS) {
        return OUTSIDE;
    }
    return u32(column) * Y_BINS + u32(row);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn bin_decay(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if i < settings.size {
        atomicAdd(&bins[bin_of(sums[i])], 1u);
    }
}
