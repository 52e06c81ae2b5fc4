// Seeded normal numbers: the same for the same (seed, step, element) on the same device, whatever the grid.
// Hash: pcg4d, Jarzynski & Olano 2020, "Hash Functions for GPU Rendering". Normal: Box & Muller 1958.

@group(0) @binding(0) var<storage, read_write> data: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> run: Run;
@group(0) @binding(2) var<uniform> draw: vec4<u32>;  // seed, step, stream, -

struct Run {
    n: u32,
    first: u32,  // index of the first element in the mega-buffer
    scale: f32,
    mean: f32,
}

fn pcg4d(key: vec4<u32>) -> vec4<u32> {
    var v = key * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v ^= v >> vec4(16u);
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn generate_normal(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    if 4u * i >= run.n {
        return;
    }
    let hash = pcg4d(vec4(run.first / 4u + i, draw.x, draw.y, draw.z));
    // 24 bits each; radius from (0, 1], so that its logarithm is finite.
    let unit = (vec4<f32>(hash >> vec4(8u)) + vec4(1.0, 1.0, 0.0, 0.0)) / 16777216.0;
    let radius = sqrt(-2.0 * log(unit.xy));
    let angle = 6.2831853 * unit.zw;
    let normal = vec4(radius * cos(angle), radius * sin(angle));
    let mine = lanes_below(4u * i, run.n);
    data[i] = select(data[i], vec4(run.mean) + run.scale * normal, mine);
}
