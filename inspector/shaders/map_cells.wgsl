// The lowest cells of the map: a part of a lane taken into them. A cell may have elements of several parts, so what
// it has already stays in it.

@group(0) @binding(4) var<storage, read_write> cells: array<Cell>;

// Elements a thread looks at; neighbours read neighbouring vec4s of the same cell.
const ELEMENTS = 16u;

var<workgroup> found: array<Cell, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_cells(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let threads = CELL / ELEMENTS;
    let tile = group.y * groups.x + group.x;
    let cell = part.low / CELL + tile * (WORKGROUP_SIZE / threads) + local / threads;
    let start = cell * CELL;
    var sum = no_sum();
    if start < part.high {
        var walk = walk_from(max(start, part.low));
        let first = start + 4u * (local % threads);
        let apart = 4u * threads;
        // All at once, so that none waits for what is made of the one before.
        let a = loaded(first, part.high);
        let b = loaded(first + apart, part.high);
        let c = loaded(first + 2u * apart, part.high);
        let d = loaded(first + 3u * apart, part.high);
        add(&sum, &walk, first, a, part.low, part.high);
        add(&sum, &walk, first + apart, b, part.low, part.high);
        add(&sum, &walk, first + 2u * apart, c, part.low, part.high);
        add(&sum, &walk, first + 3u * apart, d, part.low, part.high);
    }
    found[local] = cell_of(sum);
    workgroupBarrier();
    if local % threads == 0u && start < part.high {
        var to = cells[cell];
        for (var t = 0u; t < threads; t += 1u) {
            to = joined(to, found[local + t]);
        }
        cells[cell] = to;
    }
}
