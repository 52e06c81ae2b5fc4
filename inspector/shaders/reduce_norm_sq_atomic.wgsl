// The published reduction, with a bounded grid: a sum in each workgroup, then a compare-and-swap float add.
// The order of the additions, and so the last bits, differ from run to run.

@group(0) @binding(0) var<storage, read> data: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: atomic<u32>;
@group(0) @binding(2) var<uniform> n: u32;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

fn squares(i: u32) -> vec4<f32> {
    let x = data[i];
    let y = select(vec4(0.0), x, is_finite4(x));
    return y * y;
}

fn add(x: f32) {
    var old = atomicLoad(&result);
    loop {
        // Compared as bits, so a NaN equals itself and the loop ends.
        let swap = atomicCompareExchangeWeak(&result, old, bitcast<u32>(bitcast<f32>(old) + x));
        if swap.exchanged {
            break;
        }
        old = swap.old_value;
    }
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn reduce_norm_sq(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let stride = groups.x * WORKGROUP_SIZE;
    let whole = n / 4u;
    var i = group.x * WORKGROUP_SIZE + local;

    // Four independent sums: enough loads in flight to keep the memory busy.
    var a = vec4(0.0);
    var b = vec4(0.0);
    var c = vec4(0.0);
    var d = vec4(0.0);
    while i + 3u * stride < whole {
        a += squares(i);
        b += squares(i + stride);
        c += squares(i + 2u * stride);
        d += squares(i + 3u * stride);
        i += 4u * stride;
    }
    while i < whole {
        a += squares(i);
        i += stride;
    }
    // One thread takes the last, incomplete vec4.
    if i == whole && n % 4u != 0u {
        b += select(vec4(0.0), squares(i), lanes_below(4u * i, n));
    }
    let sum = (a + b) + (c + d);
    sums[local] = (sum.x + sum.y) + (sum.z + sum.w);
    workgroupBarrier();

    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half >>= 1u) {
        if local < half {
            sums[local] += sums[local + half];
        }
        workgroupBarrier();
    }
    if local == 0u {
        add(sums[0]);
    }
}
