// Products of stacks of equally shaped matrices, a tile of the result a workgroup; z of the grid counts the matrices.
//
// A matrix is kept row by row, each row padded with zeros to whole vec4s, one matrix after the other. Both factors pass
// through workgroup memory DEPTH of the inner dimension at a time; each thread adds up 4 x 4 blocks of the result in
// registers, in the order of the inner dimension, so that the same factors give the same bits every run. TILE, the side
// of a tile, is the kernel's own, and so is PARTS, how many floats a number of the factors is made of.

const SIDE = 16u;
const DEPTH = 16u;
const QUARTERS = TILE / 4u;
const TURNED = QUARTERS * DEPTH / 4u;  // threads with a block to be turned
const STRAIGHT = QUARTERS * DEPTH / WORKGROUP_SIZE;  // vec4s a thread otherwise, one or two
const APART = WORKGROUP_SIZE / QUARTERS;  // of the inner dimension, from one to the other

@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> right: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> addend: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> rows: u32;
@group(0) @binding(5) var<uniform> columns: u32;
@group(0) @binding(6) var<uniform> inner: u32;

// The left factor is kept as it stands, rows x inner; else its transpose is, which is the same of a symmetric one.
override LEFT_AS_IS: bool = false;
// The transpose of the right factor is kept, columns x inner; else it is kept as it stands.
override RIGHT_TRANSPOSED: bool = false;
// result = ALPHA * left * right + BETA * addend.
override ALPHA: f32 = 1.0;
override BETA: f32 = 0.0;
override RUNS: bool = false;

// [part][depth][row] and [part][depth][column], four rows or columns a vec4.
var<workgroup> left_tile: array<vec4<f32>, PARTS * DEPTH * QUARTERS>;
var<workgroup> right_tile: array<vec4<f32>, PARTS * DEPTH * QUARTERS>;

// 4 x 4 elements of the result, row by row.
struct Block {
    row0: vec4<f32>,
    row1: vec4<f32>,
    row2: vec4<f32>,
    row3: vec4<f32>,
}

fn quarters(n: u32) -> u32 {
    return (n + 3u) / 4u;
}

// What a thread takes of the left factor for the next DEPTH of the inner dimension: a 4 x 4 block to be turned, or
// vec4s that go into the tile as they are.
fn left_from_memory(matrix: u32, first: u32, depth: u32, thread: u32) -> mat4x4<f32> {
    var taken = mat4x4<f32>();
    if LEFT_AS_IS {
        let width = quarters(inner);
        let line = first + 4u * (thread / (DEPTH / 4u));
        let along = depth / 4u + thread % (DEPTH / 4u);
        if thread < TURNED && along < width {
            let at = (matrix * rows + line) * width + along;
            if line < rows { taken[0] = left[at]; }
            if line + 1u < rows { taken[1] = left[at + width]; }
            if line + 2u < rows { taken[2] = left[at + 2u * width]; }
            if line + 3u < rows { taken[3] = left[at + 3u * width]; }
        }
        return transpose(taken);
    }
    let width = quarters(rows);
    let along = depth + thread / QUARTERS;
    let group = first / 4u + thread % QUARTERS;
    if group < width {
        let at = (matrix * inner + along) * width + group;
        if along < inner { taken[0] = left[at]; }
        if STRAIGHT > 1u && along + APART < inner { taken[1] = left[at + APART * width]; }
    }
    return taken;
}

fn left_to_tile(taken: mat4x4<f32>, thread: u32) {
    if LEFT_AS_IS {
        if thread < TURNED {
            let at = 4u * (thread % (DEPTH / 4u)) * QUARTERS + thread / (DEPTH / 4u);
            left_tile[at] = taken[0];
            left_tile[at + QUARTERS] = taken[1];
            left_tile[at + 2u * QUARTERS] = taken[2];
            left_tile[at + 3u * QUARTERS] = taken[3];
        }
        return;
    }
    left_tile[thread] = taken[0];
    if STRAIGHT > 1u {
        left_tile[thread + APART * QUARTERS] = taken[1];
    }
}

// What a thread takes of the right factor for the next DEPTH of the inner dimension: a 4 x 4 block to be turned, or
// vec4s that go into the tile as they are.
fn right_from_memory(matrix: u32, first: u32, depth: u32, thread: u32) -> mat4x4<f32> {
    var taken = mat4x4<f32>();
    if RIGHT_TRANSPOSED {
        let width = quarters(inner);
        let line = first + 4u * (thread / (DEPTH / 4u));
        let along = depth / 4u + thread % (DEPTH / 4u);
        if thread < TURNED && along < width {
            let at = (matrix * columns + line) * width + along;
            if line < columns { taken[0] = right[at]; }
            if line + 1u < columns { taken[1] = right[at + width]; }
            if line + 2u < columns { taken[2] = right[at + 2u * width]; }
            if line + 3u < columns { taken[3] = right[at + 3u * width]; }
        }
        return transpose(taken);
    }
    let width = quarters(columns);
    let along = depth + thread / QUARTERS;
    let group = first / 4u + thread % QUARTERS;
    if group < width {
        let at = (matrix * inner + along) * width + group;
        if along < inner { taken[0] = right[at]; }
        if STRAIGHT > 1u && along + APART < inner { taken[1] = right[at + APART * width]; }
    }
    return taken;
}

fn right_to_tile(taken: mat4x4<f32>, thread: u32) {
    if RIGHT_TRANSPOSED {
        if thread < TURNED {
            let at = 4u * (thread % (DEPTH / 4u)) * QUARTERS + thread / (DEPTH / 4u);
            right_tile[at] = taken[0];
            right_tile[at + QUARTERS] = taken[1];
            right_tile[at + 2u * QUARTERS] = taken[2];
            right_tile[at + 3u * QUARTERS] = taken[3];
        }
        return;
    }
    right_tile[thread] = taken[0];
    if STRAIGHT > 1u {
        right_tile[thread + APART * QUARTERS] = taken[1];
    }
}

// With RUNS so much of the inner dimension is added up by itself before it goes to the rest: that rounds less than one
// long sum, in which every product meets all that was before it.
const RUN = 2u * DEPTH;

fn ends_run(depth: u32) -> bool {
    return RUNS && (depth + DEPTH) % RUN == 0u;
}

fn add_run(sum: ptr<function, Block>, run: ptr<function, Block>) {
    (*sum).row0 += (*run).row0;
    (*sum).row1 += (*run).row1;
    (*sum).row2 += (*run).row2;
    (*sum).row3 += (*run).row3;
    *run = Block();
}

// With the products of four rows and four columns at one place of the inner dimension.
fn add_products(block: ptr<function, Block>, of_rows: vec4<f32>, of_columns: vec4<f32>) {
    (*block).row0 += of_rows.x * of_columns;
    (*block).row1 += of_rows.y * of_columns;
    (*block).row2 += of_rows.z * of_columns;
    (*block).row3 += of_rows.w * of_columns;
}

// Write a block that begins at `row` and `column`; with `mirrored` its transpose as well, of a symmetric result.
fn put(matrix: u32, row: u32, column: u32, block: Block, adds: bool, mirrored: bool) {
    let width = quarters(columns);
    if column / 4u < width {
        put_row(matrix, row, column, block.row0, adds);
        put_row(matrix, row + 1u, column, block.row1, adds);
        put_row(matrix, row + 2u, column, block.row2, adds);
        put_row(matrix, row + 3u, column, block.row3, adds);
    }
    if mirrored && row / 4u < width {
        let turned = transpose(mat4x4(block.row0, block.row1, block.row2, block.row3));
        put_row(matrix, column, row, turned[0], adds);
        put_row(matrix, column + 1u, row, turned[1], adds);
        put_row(matrix, column + 2u, row, turned[2], adds);
        put_row(matrix, column + 3u, row, turned[3], adds);
    }
}

fn put_row(matrix: u32, row: u32, column: u32, values: vec4<f32>, adds: bool) {
    if row >= rows {
        return;
    }
    let at = (matrix * rows + row) * quarters(columns) + column / 4u;
    if adds {
        // The two all but cancel in iterations that bring a matrix near to what it is to be.
        let sum = added(scaled(Two(values, vec4(0.0)), ALPHA), scaled(Two(addend[at], vec4(0.0)), BETA));
        result[at] = sum.high + sum.low;
    } else {
        result[at] = ALPHA * values;
    }
}
