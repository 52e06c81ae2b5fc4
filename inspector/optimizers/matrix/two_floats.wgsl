// Numbers as the sum of two floats, the second of which has what the first cannot hold: about 44 bits in all.
//
// Only products of 12 by 12 bits have to be exact, and they are in float32, so that it is all the same whether a device
// rounds them on the way to a sum.

struct Two {
    high: vec4<f32>,
    low: vec4<f32>,
}

// The first 12 bits of each.
fn first_bits(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) & vec4(0xfffff000u));
}

// With the first float rounded from both: as near as one can be.
fn settled(x: Two) -> Two {
    let high = x.high + x.low;
    return Two(high, lost_by_sum(x.high, x.low, high));
}

// x + y; the second float is left as it comes.
fn added(x: Two, y: Two) -> Two {
    let sum = x.high + y.high;
    return Two(sum, lost_by_sum(x.high, y.high, sum) + (x.low + y.low));
}

// factor * x; the second float is left as it comes.
fn scaled(x: Two, factor: f32) -> Two {
    let high = first_bits(x.high);
    let factors = first_bits(vec4(factor));
    let low = (x.high - high) + x.low;
    return Two(factors * high, factors * low + (factor - factors) * x.high);
}

// x / divisor; by an infinite one 0, as of single floats.
fn divided(x: Two, divisor: f32) -> Two {
    let quotient = x.high / divisor;
    let left = added(x, scaled(Two(quotient, vec4(0.0)), -divisor));
    let more = (left.high + left.low) / divisor;
    return settled(Two(quotient, select(vec4(0.0), more, is_finite4(more))));
}
