// AdamW over m and v in 8 bits, in blocks of 256 elements with a scale each; four elements and one word of
// codes a thread, so that 64 threads share a block and a workgroup has four.

@group(0) @binding(0) var<storage, read_write> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> g: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> m_packed: array<u32>;
@group(0) @binding(3) var<storage, read_write> v_packed: array<u32>;
@group(0) @binding(4) var<storage, read_write> m_scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> v_scale: array<f32>;
@group(0) @binding(6) var<storage, read> grad_stats: array<f32, 2>;
@group(0) @binding(7) var<uniform> size: u32;
@group(0) @binding(8) var<uniform> hp: array<vec4<f32>, 2>;
@group(0) @binding(9) var<uniform> bias: vec4<f32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn adamw_8bit_update(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = flat_id(gid, groups);
    let block = i / THREADS_A_BLOCK;
    // Nobody leaves before the barriers. What lies beyond the size counts as 0 and stays as it is.
    let any_mine = 4u * i < size;
    let mine = lanes_below(4u * i, size);
    var m1 = vec4(0.0);
    var v1 = vec4(0.0);
    var w0 = vec4(0.0);
    var g0 = vec4(0.0);
    var codes = vec2(0u);
    var scales = vec2(0.0);
    if any_mine {
        w0 = w[i];
        g0 = g[i];
        codes = vec2(m_packed[i], v_packed[i]);
        scales = vec2(m_scale[block], v_scale[block]);
    }
    make_tables(local);
    if any_mine {
        let m0 = decode_m(codes.x, scales.x);
        let v0 = decode_v(codes.y, scales.y);
        let to = updated(w0, g0, m0, v0, grad_stats[1], hp[0], hp[1], bias, 4u * i);
        w[i] = select(w0, to.w, mine);
        if FUSED {
            g[i] = select(g0, vec4(0.0), mine);
        }
        m1 = select(vec4(0.0), coded_m(to.m), mine);
        v1 = select(vec4(0.0), coded_v(to.v), mine);
    }

    let largest = block_maxima(local, vec2(largest4(m1), largest4(v1)));
    if !any_mine {
        return;
    }
    let new_m_scale = scale_for(largest.x);
    let new_v_scale = scale_for(largest.y);
    m_packed[i] = encode_m(m1, new_m_scale);
    v_packed[i] = encode_v(v1, new_v_scale);
    if i % THREADS_A_BLOCK == 0u {
        m_scale[block] = new_m_scale;
        v_scale[block] = new_v_scale;
    }
}
