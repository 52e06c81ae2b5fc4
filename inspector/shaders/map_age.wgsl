// What the map keeps of each cell to tell when it last changed.

struct Age {
    now: vec2<u32>,      // hash of what it holds, while that is added up
    before: vec2<u32>,   // and of what it held when that was last looked at
    changed: u32,        // the step in which it was last seen to change, or from which on that is counted
}

// Bits spread over all others (the finalizer of MurmurHash3, Appleby, public domain).
fn mixed(x: u32) -> u32 {
    var h = x;
    h ^= h >> 16u;
    h *= 0x85ebca6bu;
    h ^= h >> 13u;
    h *= 0xc2b2ae35u;
    h ^= h >> 16u;
    return h;
}
