// The reduction as it was published: one thread an element, a tree in each workgroup, then a
// compare-and-swap float add from every group. Kept to measure the other forms against.

@group(0) @binding(0) var<storage, read> data: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: atomic<u32>;
@group(0) @binding(2) var<uniform> n: u32;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

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
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let i = flat_id(gid, groups);
    var square = 0.0;
    if i < n && is_finite(data[i]) {
        square = data[i] * data[i];
    }
    sums[local] = square;
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
