// Products of matrices whose numbers are sums of two floats, in tiles of 64 x 64, a block of 4 x 4 a thread.
//
// A stack has the first floats of all its matrices, then the second ones. Of every number the leading bits are taken apart,
// as whole multiples of a unit that four rows (or columns) have in common for DEPTH of the inner dimension, so few that the
// sum of DEPTH products is exact. What rounding takes from the sum of these sums is added up beside it with all other
// products, which are so small that their own rounding does not matter. (Leading parts are taken so by Ozaki et al. 2012,
// Error-free transformations of matrix multiplication.)

const TILE = 64u;
const PARTS = 2u;

// Units in the power of two at or below the largest number: DEPTH products of at most 2^10 by 2^10 have 24 bits.
const UNITS = 512.0;

// The bits of the largest number of four rows of the left and of four columns of the right factor, for this DEPTH of the
// inner dimension and for the next.
var<workgroup> left_largest: array<array<atomic<u32>, QUARTERS>, 2>;
var<workgroup> right_largest: array<array<atomic<u32>, QUARTERS>, 2>;

// 4 x 4 elements of the result, row by row.
struct TwoBlock {
    high: Block,
    low: Block,
}

// Add an exact sum to `high`, and what rounding takes from it to `low`.
fn add_exact(high: ptr<function, Block>, low: ptr<function, Block>, exact: Block) {
    let before = *high;
    let after = Block(
        before.row0 + exact.row0,
        before.row1 + exact.row1,
        before.row2 + exact.row2,
        before.row3 + exact.row3,
    );
    (*low).row0 += lost_by_sum(before.row0, exact.row0, after.row0);
    (*low).row1 += lost_by_sum(before.row1, exact.row1, after.row1);
    (*low).row2 += lost_by_sum(before.row2, exact.row2, after.row2);
    (*low).row3 += lost_by_sum(before.row3, exact.row3, after.row3);
    *high = after;
}

fn largest_bits(x: vec4<f32>) -> u32 {
    // Signs left out; of what is not finite they are more than of any number.
    let bits = bitcast<vec4<u32>>(abs(x));
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// The leading bits of numbers, the bits of the largest of which are given: whole multiples of 1 / UNITS of the power of two
// at or below it.
fn leading(x: vec4<f32>, largest: u32) -> vec4<f32> {
    // Neither it nor its reciprocal may be too small to be a normal number.
    let power = clamp(largest & EXPONENT_MASK, 0x10000000u, 0x6f000000u);
    let per_unit = bitcast<f32>(0x7f000000u - power) * UNITS;
    return round(per_unit * x) * (bitcast<f32>(power) / UNITS);
}

// What a thread takes of a factor for the next DEPTH of the inner dimension: four numbers of one row of the left (or of one
// column of the right) where they are to be turned, else one of each of four.
fn left_numbers(matrix: u32, first: u32, depth: u32, thread: u32) -> vec4<f32> {
    if !LEFT_AS_IS {
        return left_from_memory(matrix, first, depth, thread)[0];
    }
    let row = first + thread / (DEPTH / 4u);
    let along = depth / 4u + thread % (DEPTH / 4u);
    if row >= rows || along >= quarters(inner) {
        return vec4(0.0);
    }
    return left[(matrix * rows + row) * quarters(inner) + along];
}

fn right_numbers(matrix: u32, first: u32, depth: u32, thread: u32) -> vec4<f32> {
    if !RIGHT_TRANSPOSED {
        return right_from_memory(matrix, first, depth, thread)[0];
    }
    let column = first + thread / (DEPTH / 4u);
    let along = depth / 4u + thread % (DEPTH / 4u);
    if column >= columns || along >= quarters(inner) {
        return vec4(0.0);
    }
    return right[(matrix * columns + column) * quarters(inner) + along];
}

// The four rows, or columns, that they are of.
fn quarter_of(thread: u32, turned: bool) -> u32 {
    return select(thread % QUARTERS, thread / DEPTH, turned);
}

// Where they belong in a tile.
fn place_of(thread: u32, turned: bool, part: u32) -> u32 {
    let along = select(thread / QUARTERS, 4u * (thread % (DEPTH / 4u)), turned);
    return (part * DEPTH + along) * QUARTERS + quarter_of(thread, turned);
}

fn put_left(numbers: vec4<f32>, thread: u32, part: u32) {
    let at = place_of(thread, LEFT_AS_IS, part);
    if !LEFT_AS_IS {
        left_tile[at] = numbers;
        return;
    }
    let row = thread / (DEPTH / 4u) % 4u;
    left_tile[at][row] = numbers.x;
    left_tile[at + QUARTERS][row] = numbers.y;
    left_tile[at + 2u * QUARTERS][row] = numbers.z;
    left_tile[at + 3u * QUARTERS][row] = numbers.w;
}

fn put_right(numbers: vec4<f32>, thread: u32, part: u32) {
    let at = place_of(thread, RIGHT_TRANSPOSED, part);
    if !RIGHT_TRANSPOSED {
        right_tile[at] = numbers;
        return;
    }
    let column = thread / (DEPTH / 4u) % 4u;
    right_tile[at][column] = numbers.x;
    right_tile[at + QUARTERS][column] = numbers.y;
    right_tile[at + 2u * QUARTERS][column] = numbers.z;
    right_tile[at + 3u * QUARTERS][column] = numbers.w;
}

fn tile(group: vec3<u32>, matrices: u32, thread: vec3<u32>, symmetric: bool) -> TwoBlock {
    let flat = thread.y * SIDE + thread.x;
    let row = TILE * group.y;
    let column = TILE * group.x;
    var high = Block();
    var low = Block();
    if symmetric && group.x < group.y {
        return TwoBlock(high, low);
    }
    let of_rows = quarter_of(flat, LEFT_AS_IS);
    let of_columns = quarter_of(flat, RIGHT_TRANSPOSED);
    if flat < QUARTERS {
        atomicStore(&left_largest[0][flat], 0u);
        atomicStore(&right_largest[0][flat], 0u);
    }
    workgroupBarrier();
    for (var depth = 0u; depth < inner; depth += DEPTH) {
        let turn = depth / DEPTH % 2u;
        let left_first = left_numbers(group.z, row, depth, flat);
        let left_second = left_numbers(matrices + group.z, row, depth, flat);
        let right_first = right_numbers(group.z, column, depth, flat);
        let right_second = right_numbers(matrices + group.z, column, depth, flat);
        atomicMax(&left_largest[turn][of_rows], largest_bits(left_first));
        atomicMax(&right_largest[turn][of_columns], largest_bits(right_first));
        workgroupBarrier();
        let left_high = leading(left_first, atomicLoad(&left_largest[turn][of_rows]));
        let right_high = leading(right_first, atomicLoad(&right_largest[turn][of_columns]));
        put_left(left_high, flat, 0u);
        put_left((left_first - left_high) + left_second, flat, 1u);
        put_right(right_high, flat, 0u);
        put_right((right_first - right_high) + right_second, flat, 1u);
        if flat < QUARTERS {
            atomicStore(&left_largest[1u - turn][flat], 0u);
            atomicStore(&right_largest[1u - turn][flat], 0u);
        }
        workgroupBarrier();
        var exact = Block();
        for (var k = 0u; k < DEPTH; k++) {
            let rows_high = left_tile[k * QUARTERS + thread.y];
            let rows_low = left_tile[(DEPTH + k) * QUARTERS + thread.y];
            let columns_high = right_tile[k * QUARTERS + thread.x];
            let columns_low = right_tile[(DEPTH + k) * QUARTERS + thread.x];
            add_products(&exact, rows_high, columns_high);
            add_products(&low, rows_high, columns_low);
            add_products(&low, rows_low, columns_high + columns_low);
        }
        add_exact(&high, &low, exact);
    }
    return TwoBlock(high, low);
}

// ALPHA * sum + BETA * addend, the addend at a vec4 of its first floats.
fn finished(sum: Two, at: u32, second: u32, adds: bool) -> Two {
    let own = scaled(settled(sum), ALPHA);
    if !adds {
        return settled(own);
    }
    return settled(added(own, scaled(Two(addend[at], addend[at + second]), BETA)));
}

// Write a thread's block; of a symmetric result its transpose as well.
fn put_two(group: vec3<u32>, matrices: u32, thread: vec3<u32>, block: TwoBlock, adds: bool, symmetric: bool) {
    if symmetric && group.x < group.y {
        return;
    }
    let row = TILE * group.y + 4u * thread.y;
    let column = TILE * group.x + 4u * thread.x;
    let width = quarters(columns);
    let second = matrices * rows * width;
    let start = group.z * rows * width;
    var sums = array(
        Two(block.high.row0, block.low.row0),
        Two(block.high.row1, block.low.row1),
        Two(block.high.row2, block.low.row2),
        Two(block.high.row3, block.low.row3),
    );
    for (var i = 0u; i < 4u; i++) {
        if row + i >= rows || column / 4u >= width {
            sums[i] = Two();
            continue;
        }
        let at = start + (row + i) * width + column / 4u;
        sums[i] = finished(sums[i], at, second, adds);
        result[at] = sums[i].high;
        result[at + second] = sums[i].low;
    }
    if symmetric && group.x > group.y && row / 4u < width {
        let high = transpose(mat4x4(sums[0].high, sums[1].high, sums[2].high, sums[3].high));
        let low = transpose(mat4x4(sums[0].low, sums[1].low, sums[2].low, sums[3].low));
        for (var i = 0u; i < 4u; i++) {
            if column + i < rows {
                let at = start + (column + i) * width + row / 4u;
                result[at] = high[i];
                result[at + second] = low[i];
            }
        }
    }
}

// left * its own transpose, which is symmetric: tiles above the diagonal are worked out, and written below it as well.
@compute @workgroup_size(SIDE, SIDE)
fn gram_two_floats(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    put_two(group, groups.z, thread, tile(group, groups.z, thread, true), false, true);
}

// A symmetric product of symmetric factors, with an addend that is symmetric too.
@compute @workgroup_size(SIDE, SIDE)
fn symmetric_product_two_floats(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    put_two(group, groups.z, thread, tile(group, groups.z, thread, true), true, true);
}

// A product with an addend.
@compute @workgroup_size(SIDE, SIDE)
fn product_two_floats(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    put_two(group, groups.z, thread, tile(group, groups.z, thread, false), true, false);
}
