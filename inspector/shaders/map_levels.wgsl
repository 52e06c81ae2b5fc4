// Cells of one level of the map from the eight under each on the level below. All levels lie in one buffer.

@group(0) @binding(0) var<storage, read_write> cells: array<Cell>;
@group(0) @binding(1) var<uniform> level: Level;

const CELLS_A_CELL = 8u;

struct Level {
    below: u32,   // where the level below begins
    count: u32,   // and how many cells it has
    at: u32,      // where this level begins
    first: u32,   // its cells [first, stop) are made
    stop: u32,
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_levels(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let cell = level.first + flat_id(gid, groups);
    if cell >= level.stop {
        return;
    }
    var to: Cell;
    let last = min((cell + 1u) * CELLS_A_CELL, level.count);
    for (var i = cell * CELLS_A_CELL; i < last; i += 1u) {
        to = joined(to, cells[level.below + i]);
    }
    cells[level.at + cell] = to;
}
