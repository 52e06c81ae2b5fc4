// What the map keeps of a run of elements: the least and the largest of the finite ones, the mean of their
// magnitudes, and how many there are of either kind. All zero where there are none.

struct Cell {
    low: f32,
    high: f32,
    mean: f32,
    finite: u32,
    nonfinite: u32,
}

fn joined(a: Cell, b: Cell) -> Cell {
    var to = a;
    to.nonfinite += b.nonfinite;
    if b.finite == 0u {
        return to;
    }
    to.finite += b.finite;
    if a.finite == 0u {
        to.low = b.low;
        to.high = b.high;
        to.mean = b.mean;
        return to;
    }
    to.low = min(a.low, b.low);
    to.high = max(a.high, b.high);
    // Weighted rather than summed: a sum of magnitudes may overflow where their mean does not.
    let share = f32(b.finite) / f32(to.finite);
    to.mean = a.mean * (1.0 - share) + b.mean * share;
    return to;
}
