// Products of matrices in tiles of 64 x 64, a block of 4 x 4 a thread: for small matrices, of which there would be too
// few larger tiles to keep a device busy.

const TILE = 64u;
const PARTS = 1u;

fn tile(group: vec3<u32>, thread: vec3<u32>, adds: bool, symmetric: bool) {
    if symmetric && group.x < group.y {
        return;
    }
    let flat = thread.y * SIDE + thread.x;
    let row = TILE * group.y;
    let column = TILE * group.x;
    var block = Block();
    var run = Block();
    // What comes next is on its way from memory while a tile is worked on.
    var from_left = left_from_memory(group.z, row, 0u, flat);
    var from_right = right_from_memory(group.z, column, 0u, flat);
    for (var depth = 0u; depth < inner; depth += DEPTH) {
        left_to_tile(from_left, flat);
        right_to_tile(from_right, flat);
        workgroupBarrier();
        from_left = left_from_memory(group.z, row, depth + DEPTH, flat);
        from_right = right_from_memory(group.z, column, depth + DEPTH, flat);
        for (var k = 0u; k < DEPTH; k++) {
            add_products(&run, left_tile[k * QUARTERS + thread.y], right_tile[k * QUARTERS + thread.x]);
        }
        if ends_run(depth) {
            add_run(&block, &run);
        }
        workgroupBarrier();
    }
    add_run(&block, &run);
    let mirrored = symmetric && group.x > group.y;
    let first_row = row + 4u * thread.y;
    let first_column = column + 4u * thread.x;
    put(group.z, first_row, first_column, block, adds, mirrored);
}

// left * its own transpose, which is symmetric: tiles above the diagonal are worked out, and written below it as well.
@compute @workgroup_size(SIDE, SIDE)
fn gram(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
) {
    tile(group, thread, false, true);
}

// A symmetric product of symmetric factors, with an addend that is symmetric too.
@compute @workgroup_size(SIDE, SIDE)
fn symmetric_product(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
) {
    tile(group, thread, true, true);
}

@compute @workgroup_size(SIDE, SIDE)
fn product(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
) {
    tile(group, thread, true, false);
}
