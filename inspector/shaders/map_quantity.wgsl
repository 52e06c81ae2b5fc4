// The elements of a part of a lane, each with the quantity that the map shows of it.

@group(0) @binding(0) var<storage, read> data: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> extra: array<u32>;
@group(0) @binding(2) var<storage, read> runs: array<Run>;
@group(0) @binding(3) var<uniform> part: Part;

// What is shown: 0 the value, 1 what was added since `extra`, 2 its magnitude over the learning rate, 3 steps since
// `extra`, 4 `extra` itself.
override KIND: u32 = 0u;
// Elements of a cell of the lowest level.
override CELL: u32 = 64u;

// Elements of params that follow each other without a gap, and the learning rate they share.
struct Run {
    start: u32,
    stop: u32,
    lr: f32,
}

struct Part {
    first: u32,         // the mega-buffer element that data[0].x is
    low: u32,           // the part: elements [low, high)
    high: u32,
    runs: u32,          // how many runs there are
    run: u32,           // the one that covers the part, or else `runs`
    extra_first: u32,   // the element whose extra is extra[extra_at]
    extra_at: u32,
    extra_shift: u32,   // 2^extra_shift elements share one
    extra_stride: u32,  // words from one to the next
    step: u32,
}

// Where a thread is on its way through the runs.
struct Walk {
    run: Run,
    at: u32,
}

const NO_RUN = Run(0xffffffffu, 0xffffffffu, 1.0);

// At the first run that ends behind an element.
fn walk_from(element: u32) -> Walk {
    var low = part.run;
    if low == part.runs {
        low = 0u;
        var high = part.runs;
        while low < high {
            let middle = (low + high) / 2u;
            if runs[middle].stop <= element {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
    }
    if low >= part.runs {
        return Walk(NO_RUN, low);
    }
    return Walk(runs[low], low);
}

fn extra_of(element: u32) -> u32 {
    let at = (element - part.extra_first) >> part.extra_shift;
    return extra[part.extra_at + at * part.extra_stride];
}

// The extras of four elements. Those that share one share it four at a time.
fn extra_of4(element: u32) -> vec4<u32> {
    if KIND == 3u || KIND == 4u {
        return vec4(extra_of(element));
    }
    let at = part.extra_at + element - part.extra_first;
    return vec4(extra[at], extra[at + 1u], extra[at + 2u], extra[at + 3u]);
}

fn quantity(element: u32, values: vec4<f32>, lr: f32) -> vec4<f32> {
    switch KIND {
        case 1u: { return values - bitcast<vec4<f32>>(extra_of4(element)); }
        case 2u: {
            // At a learning rate of 0 nothing moves.
            let moved = abs(values - bitcast<vec4<f32>>(extra_of4(element)));
            return select(moved / lr, vec4(0.0), lr == 0.0);
        }
        case 3u: {
            // In the middle of a step what it has changed so far is of that step already.
            let changed = extra_of4(element);
            return vec4<f32>(max(vec4(part.step), changed) - changed);
        }
        case 4u: { return bitcast<vec4<f32>>(extra_of4(element)); }
        default: { return values; }
    }
}

const LARGEST = 3.4028234663852886e38;

// Up to CELL elements on their way into a cell, in four columns. Magnitudes are scaled down as they are added, so that
// no sum overflows.
struct Sum {
    low: vec4<f32>,
    high: vec4<f32>,
    scaled: vec4<f32>,
    finite: vec4<u32>,
    nonfinite: vec4<u32>,
}

fn no_sum() -> Sum {
    return Sum(vec4(LARGEST), vec4(-LARGEST), vec4(0.0), vec4(0u), vec4(0u));
}

// The four elements from `element` on, where they are bound.
fn loaded(element: u32, high: u32) -> vec4<f32> {
    if element < part.first || element >= high {
        return vec4(0.0);
    }
    return data[(element - part.first) / 4u];
}

// Takes in the four elements that were loaded, as far as they are in [low, high) and in the run that `walk` is at or comes to: runs begin at
// multiples of four. An element without a quantity that is finite, as what changed by more than the largest number or
// was not finite before, counts as neither.
fn add(
    sum: ptr<function, Sum>,
    walk: ptr<function, Walk>,
    element: u32,
    values: vec4<f32>,
    low: u32,
    high: u32,
) {
    while (*walk).run.stop <= element {
        (*walk).at += 1u;
        (*walk).run = NO_RUN;
        if (*walk).at < part.runs {
            (*walk).run = runs[(*walk).at];
        }
    }
    if element < max(part.first, (*walk).run.start) || element >= high {
        return;
    }
    let good = is_finite4(values);
    let shown = quantity(element, values, (*walk).run.lr);
    let stop = min(high, (*walk).run.stop);
    if element >= low && element + 4u <= stop && all(good) && all(is_finite4(shown)) {
        // As almost everywhere.
        (*sum).low = min((*sum).low, shown);
        (*sum).high = max((*sum).high, shown);
        (*sum).scaled += abs(shown) * (1.0 / f32(CELL));
        (*sum).finite.x += 4u;
        return;
    }
    let place = vec4(element) + vec4(0u, 1u, 2u, 3u);
    let inside = place >= vec4(low) & place < vec4(stop);
    let counted = inside & good & is_finite4(shown);
    (*sum).low = min((*sum).low, select(vec4(LARGEST), shown, counted));
    (*sum).high = max((*sum).high, select(vec4(-LARGEST), shown, counted));
    (*sum).scaled += select(vec4(0.0), abs(shown), counted) * (1.0 / f32(CELL));
    (*sum).finite += vec4<u32>(counted);
    (*sum).nonfinite += vec4<u32>(inside & !good);
}

fn cell_of(sum: Sum) -> Cell {
    let finite = sum.finite.x + sum.finite.y + sum.finite.z + sum.finite.w;
    let nonfinite = sum.nonfinite.x + sum.nonfinite.y + sum.nonfinite.z + sum.nonfinite.w;
    if finite == 0u {
        return Cell(0.0, 0.0, 0.0, 0u, nonfinite);
    }
    let scaled = (sum.scaled.x + sum.scaled.y) + (sum.scaled.z + sum.scaled.w);
    return Cell(
        min(min(sum.low.x, sum.low.y), min(sum.low.z, sum.low.w)),
        max(max(sum.high.x, sum.high.y), max(sum.high.z, sum.high.w)),
        scaled * (f32(CELL) / f32(finite)),
        finite,
        nonfinite,
    );
}
