// Products of stacks of equally shaped matrices, a tile of the result a workgroup; z of the grid counts the matrices.
//
// A matrix is kept row by row, each row padded with zeros to whole vec4s, one matrix after the other. Both factors pass
// through workgroup memory DEPTH of the inner dimension at a time; each thread adds up 4 x 4 blocks of the result in
// registers, in the order of the inner dimension, so that the same factors give the same bits every run. TILE, the side
// of a tile, is the kernel's own.

const SIDE = 16u;
const DEPTH = 16u;
const QUARTERS = TILE / 4u;

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

// [depth][row] and [depth][column], four rows or columns a vec4.
var<workgroup> left_tile: array<vec4<f32>, DEPTH * QUARTERS>;
var<workgroup> right_tile: array<vec4<f32>, DEPTH * QUARTERS>;

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

fn fetch_left(matrix: u32, first: u32, depth: u32, thread: u32) {
    if LEFT_AS_IS {
        let width = quarters(inner);
        let base = matrix * rows * width;
        for (var at = thread; at < QUARTERS * (DEPTH / 4u); at += WORKGROUP_SIZE) {
            let along = at % (DEPTH / 4u);
            let group = at / (DEPTH / 4u);
            let row = first + 4u * group;
            let column = depth / 4u + along;
            var block = mat4x4<f32>();
            if column < width {
                let from_ = base + row * width + column;
                if row < rows { block[0] = left[from_]; }
                if row + 1u < rows { block[1] = left[from_ + width]; }
                if row + 2u < rows { block[2] = left[from_ + 2u * width]; }
                if row + 3u < rows { block[3] = left[from_ + 3u * width]; }
            }
            block = transpose(block);
            let to = 4u * along * QUARTERS + group;
            left_tile[to] = block[0];
            left_tile[to + QUARTERS] = block[1];
            left_tile[to + 2u * QUARTERS] = block[2];
            left_tile[to + 3u * QUARTERS] = block[3];
        }
        return;
    }
    let width = quarters(rows);
    let base = matrix * inner * width;
    for (var at = thread; at < DEPTH * QUARTERS; at += WORKGROUP_SIZE) {
        let along = depth + at / QUARTERS;
        let group = first / 4u + at % QUARTERS;
        var value = vec4(0.0);
        if along < inner && group < width {
            value = left[base + along * width + group];
        }
        left_tile[at] = value;
    }
}

fn fetch_right(matrix: u32, first: u32, depth: u32, thread: u32) {
    if RIGHT_TRANSPOSED {
        let width = quarters(inner);
        let base = matrix * columns * width;
        for (var at = thread; at < QUARTERS * (DEPTH / 4u); at += WORKGROUP_SIZE) {
            let along = at % (DEPTH / 4u);
            let group = at / (DEPTH / 4u);
            let column = first + 4u * group;
            let quarter = depth / 4u + along;
            var block = mat4x4<f32>();
            if quarter < width {
                let from_ = base + column * width + quarter;
                if column < columns { block[0] = right[from_]; }
                if column + 1u < columns { block[1] = right[from_ + width]; }
                if column + 2u < columns { block[2] = right[from_ + 2u * width]; }
                if column + 3u < columns { block[3] = right[from_ + 3u * width]; }
            }
            block = transpose(block);
            let to = 4u * along * QUARTERS + group;
            right_tile[to] = block[0];
            right_tile[to + QUARTERS] = block[1];
            right_tile[to + 2u * QUARTERS] = block[2];
            right_tile[to + 3u * QUARTERS] = block[3];
        }
        return;
    }
    let width = quarters(columns);
    let base = matrix * inner * width;
    for (var at = thread; at < DEPTH * QUARTERS; at += WORKGROUP_SIZE) {
        let along = depth + at / QUARTERS;
        let group = first / 4u + at % QUARTERS;
        var value = vec4(0.0);
        if along < inner && group < width {
            value = right[base + along * width + group];
        }
        right_tile[at] = value;
    }
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
        result[at] = ALPHA * values + BETA * addend[at];
    } else {
        result[at] = ALPHA * values;
    }
}
