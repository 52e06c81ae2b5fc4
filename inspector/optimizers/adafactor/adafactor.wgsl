// Shared by Adafactor's kernels. A workgroup works on a tile of one matrix of one param; a vector is a matrix of one
// row. Every sum is added up in one order, whatever the device does first: the same bits every run.

const VECTOR_TILE = 4096u;
// Threads across a tile, four columns each.
const THREADS_ACROSS = 64u;
const FOUR = vec4(0u, 1u, 2u, 3u);

// A tile: the first of its rows and columns, in which matrix of which param, and where its sums go.
struct Tile {
    matrix: u32,
    slice: u32,
    row: u32,
    column: u32,
    rows_at: u32,
    columns_at: u32,
    part_at: u32,
    unused: u32,
}

// A param, as far as one binding of g holds it. `start` is where it begins in that binding, and wraps below 0 where
// it begins in one before.
struct Matrix {
    start: u32,
    rows: u32,
    columns: u32,
    tile_rows: u32,
    row_at: u32,
    column_at: u32,
    scale_at: u32,
    decays: u32,
}

// Where rows begin at a whole vec4, four columns are one read.
fn is_whole(matrix: Matrix) -> bool {
    return matrix.columns % 4u == 0u;
}

fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

// The gradient clipped, 0 where it is not finite.
fn clipped(g: f32, clip_scale: f32) -> f32 {
    return select(1.0, clip_scale, FUSED) * select(0.0, g, is_finite(g));
}

fn clipped4(g: vec4<f32>, clip_scale: f32) -> vec4<f32> {
    return select(1.0, clip_scale, FUSED) * select(vec4(0.0), g, is_finite4(g));
}

var<workgroup> tree: array<f32, WORKGROUP_SIZE>;

// The sum over the threads of a workgroup, known to all of them.
fn total(thread: u32, x: f32) -> f32 {
    tree[thread] = x;
    workgroupBarrier();
    for (var half = WORKGROUP_SIZE / 2u; half > 0u; half /= 2u) {
        if thread < half {
            tree[thread] += tree[thread + half];
        }
        workgroupBarrier();
    }
    let sum = tree[0];
    // Before anybody writes there again.
    workgroupBarrier();
    return sum;
}
