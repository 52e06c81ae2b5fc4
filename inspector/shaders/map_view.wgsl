// Which elements each pixel of a map covers, and where it is written: five planes of a word a pixel, row by row.

struct View {
    start: u32,        // the element at the left edge, whole part
    start_part: u32,   // and the rest of it, in 2^-32
    each: u32,         // elements from one pixel to the next, down a column and then on to the next column
    each_part: u32,
    width: u32,
    height: u32,
    rows: u32,         // pixels of a column that differ: `height`, or 1
    cell: u32,         // what edges are multiples of; 0 where a pixel shows the one element in its middle
    end: u32,          // the element after the last of any param
    at: u32,           // where the level of the cells begins
    to: u32,           // the word at which the planes begin
}

// start + p * each in whole elements: the upper half of a 64-bit product in parts of 16 bits.
fn element_of(p: u32) -> u32 {
    let low = p & 0xffffu;
    let high = p >> 16u;
    let part_low = view.each_part & 0xffffu;
    let part_high = view.each_part >> 16u;
    let ll = low * part_low;
    let lh = low * part_high;
    let hl = high * part_low;
    let middle = (ll >> 16u) + (lh & 0xffffu) + (hl & 0xffffu);
    let rest = (middle << 16u) | (ll & 0xffffu);
    let carry = select(0u, 1u, rest + view.start_part < rest);
    let whole = high * part_high + (lh >> 16u) + (hl >> 16u) + (middle >> 16u) + carry;
    return view.start + p * view.each + whole;
}

fn edge(p: u32) -> u32 {
    let element = element_of(p);
    return select(element / max(view.cell, 1u) * max(view.cell, 1u), view.end, element >= view.end);
}

// Elements [x, y) under pixel number p of those that differ.
fn under(p: u32) -> vec2<u32> {
    let low = edge(p);
    if view.cell == 0u {
        return vec2(low, min(low + 1u, view.end));
    }
    return vec2(low, min(max(edge(p + 1u), low + 1u), view.end));
}

// The place of pixel number p in a plane; of rows that are alike the first.
fn place(p: u32) -> u32 {
    return view.to + (p % view.rows) * view.width + p / view.rows;
}

fn plane() -> u32 {
    return view.width * view.rows;
}
