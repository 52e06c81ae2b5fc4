// The means of squared gradients over rows and columns blended into row_var and col_var: 32 of them a workgroup, the
// sums that make one added up by eight threads.
// bias: 1-beta2_t, beta2_t, eps1, d.

struct Entry {
    state_at: u32,
    count: u32,
    parts_at: u32,
    stride: u32,
    parts: u32,
    elements: u32,
    kind: u32,
    unused: u32,
}

@group(0) @binding(0) var<storage, read_write> row_var: array<f32>;
@group(0) @binding(1) var<storage, read_write> col_var: array<f32>;
@group(0) @binding(2) var<storage, read> row_parts: array<f32>;
@group(0) @binding(3) var<storage, read> column_parts: array<f32>;
@group(0) @binding(4) var<storage, read> entries: array<Entry>;
@group(0) @binding(5) var<uniform> bias: vec4<f32>;

const ENTRIES = 32u;
const HELPERS = 8u;

var<workgroup> sums: array<f32, WORKGROUP_SIZE>;

fn part(kind: u32, at: u32) -> f32 {
    if kind == 0u {
        return row_parts[at];
    }
    return column_parts[at];
}

fn four_parts(entry: Entry, at: u32) -> vec4<f32> {
    let step = HELPERS * entry.stride;
    return vec4(
        part(entry.kind, at),
        part(entry.kind, at + step),
        part(entry.kind, at + 2u * step),
        part(entry.kind, at + 3u * step),
    );
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn adafactor_factors(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group_number(group, groups);
    if number >= arrayLength(&entries) {
        return;
    }
    let entry = entries[number];
    let mine = thread % ENTRIES;
    let helper = thread / ENTRIES;
    var sum = 0.0;
    if mine < entry.count {
        let at = entry.parts_at + mine;
        var k = helper;
        // Several on their way at once: none waits for another.
        for (; k + 7u * HELPERS < entry.parts; k += 8u * HELPERS) {
            let one = four_parts(entry, at + k * entry.stride);
            let other = four_parts(entry, at + (k + 4u * HELPERS) * entry.stride);
            sum += dot(one + other, vec4(1.0));
        }
        for (; k < entry.parts; k += HELPERS) {
            sum += part(entry.kind, at + k * entry.stride);
        }
    }
    sums[thread] = sum;
    workgroupBarrier();
    if thread >= entry.count {
        return;
    }
    var whole = 0.0;
    for (var k = 0u; k < HELPERS; k++) {
        whole += sums[k * ENTRIES + thread];
    }
    let blended = bias.x * (whole / f32(entry.elements) + bias.z);
    let at = entry.state_at + thread;
    if entry.kind == 0u {
        row_var[at] = bias.y * row_var[at] + blended;
    } else {
        col_var[at] = bias.y * col_var[at] + blended;
    }
}
