// 8-bit codes and scales of m or v from float32 values, for loading a state.

@group(0) @binding(0) var<storage, read_write> codes: array<u32>;
@group(0) @binding(1) var<storage, read_write> scales: array<f32>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> what: vec2<u32>;  // elements; 0 for m, 1 for v

@compute @workgroup_size(WORKGROUP_SIZE)
fn encode_8bit(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    make_tables(local);
    let i = flat_id(gid, groups);
    let any_mine = 4u * i < what.x;
    var x = vec4(0.0);
    if any_mine {
        x = select(vec4(0.0), values[i], lanes_below(4u * i, what.x));
    }
    if what.y == 0u {
        x = coded_m(x);
    } else {
        x = coded_v(x);
    }
    let scale = scale_for(block_maxima(local, vec2(largest4(x), 0.0)).x);
    if !any_mine {
        return;
    }
    if what.y == 0u {
        codes[i] = encode_m(x, scale);
    } else {
        codes[i] = encode_v(x, scale);
    }
    if i % THREADS_A_BLOCK == 0u {
        scales[i / THREADS_A_BLOCK] = scale;
    }
}
