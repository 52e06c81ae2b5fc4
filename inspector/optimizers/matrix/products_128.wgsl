// Products of matrices in tiles of 128 x 128, four blocks of 4 x 4 a thread, 64 rows or columns apart.

const TILE = 128u;
const PARTS = 1u;

fn tile(group: vec3<u32>, thread: vec3<u32>, adds: bool, symmetric: bool) {
    if symmetric && group.x < group.y {
        return;
    }
    let flat = thread.y * SIDE + thread.x;
    let row = TILE * group.y;
    let column = TILE * group.x;
    var block00 = Block();
    var block01 = Block();
    var block10 = Block();
    var block11 = Block();
    var run00 = Block();
    var run01 = Block();
    var run10 = Block();
    var run11 = Block();
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
            let rows0 = left_tile[k * QUARTERS + thread.y];
            let rows1 = left_tile[k * QUARTERS + SIDE + thread.y];
            let columns0 = right_tile[k * QUARTERS + thread.x];
            let columns1 = right_tile[k * QUARTERS + SIDE + thread.x];
            add_products(&run00, rows0, columns0);
            add_products(&run01, rows0, columns1);
            add_products(&run10, rows1, columns0);
            add_products(&run11, rows1, columns1);
        }
        if ends_run(depth) {
            add_run(&block00, &run00);
            add_run(&block01, &run01);
            add_run(&block10, &run10);
            add_run(&block11, &run11);
        }
        workgroupBarrier();
    }
    add_run(&block00, &run00);
    add_run(&block01, &run01);
    add_run(&block10, &run10);
    add_run(&block11, &run11);
    let mirrored = symmetric && group.x > group.y;
    let first_row = row + 4u * thread.y;
    let first_column = column + 4u * thread.x;
    put(group.z, first_row, first_column, block00, adds, mirrored);
    put(group.z, first_row, first_column + 64u, block01, adds, mirrored);
    put(group.z, first_row + 64u, first_column, block10, adds, mirrored);
    put(group.z, first_row + 64u, first_column + 64u, block11, adds, mirrored);
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
