// Counts over w, g, m and v of every param, and over the update to come, in one pass; see counting.py for the layout
// of what it is given and what it gives. A block of threads takes CHUNK elements of one param.
// Every word of `out` is combined by an addition or a maximum whose neutral element is 0, so that the buffer is zeroed
// once for a step.

typedef unsigned long long u64;
typedef unsigned int u32;

#ifndef THREADS
#define THREADS 256
#endif
#define CHUNK 16384
#define LANES 4
#define LANE_WORDS 8
#define UPDATE_AT (LANES * LANE_WORDS)
#define WORDS (UPDATE_AT + 7)

struct Job {
    u64 at[5];        // addresses of w, g, m, v and of the largest v (amsgrad); 0: all zero
    u64 step;         // address of a float32 count of the steps before this one, 0: `t` says it
    u64 lr_at;        // address of a float32 learning rate, 0: `lr` says it
    u64 scale_at;     // address of a float32 that the gradients are still multiplied by, 0: none
    double lr, beta1, beta2, eps, decay, t;
    double sign;      // what the gradient is multiplied by: -1 where the optimizer maximizes
    u64 kinds;        // type of each of `at`, 4 bits: 0 float32, 1 bfloat16, 2 float16
    u64 form;         // 1: Adam; 2: the decay is part of the gradient; 4: no update in this step
    u64 numel;
};

__device__ float from_half(u32 h) {
    u32 sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3FFu;
    if (exponent == 31u) return __uint_as_float(sign | 0x7F800000u | (mantissa << 13));
    if (exponent) return __uint_as_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    float small = (float)mantissa * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -small : small;
}

__device__ float load(u64 at, u32 kind, u64 i) {
    if (!at) return 0.0f;
    if (kind == 0) return ((const float*)at)[i];
    u32 half = ((const unsigned short*)at)[i];
    return kind == 1 ? __uint_as_float(half << 16) : from_half(half);
}

// What `x` becomes when it is stored: the nearest of its type, ties to even.
__device__ float stored(float x, u32 kind) {
    u32 bits = __float_as_uint(x);
    if (kind == 0 || (bits & 0x7F800000u) == 0x7F800000u) return x;
    if (kind == 1) return __uint_as_float((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
    u32 exponent = (bits >> 23) & 255u;
    if (exponent < 113u) {  // less than 2^-14: multiples of 2^-24
        float scaled = rintf(x * 16777216.0f);
        return copysignf(scaled * 5.9604644775390625e-8f, x);
    }
    u32 rounded = (bits + 0xFFFu + ((bits >> 13) & 1u)) & 0xFFFFE000u;
    return (rounded & 0x7FFFFFFFu) >= 0x47800000u ? __uint_as_float((bits & 0x80000000u) | 0x7F800000u)
                                                  : __uint_as_float(rounded);
}

// In the order of the numbers, and above 0 for every finite one.
__device__ u32 ordered(float x) {
    u32 bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ u64 highest(u64 a, u64 b) { return a > b ? a : b; }

__device__ u64 warp_highest(u64 x) {
    for (int d = 16; d; d >>= 1) x = highest(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    return x;
}
__device__ u32 warp_sum(u32 x) {
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}
__device__ double warp_sum(double x) {
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
count_params(const Job* jobs, const uint2* blocks, u64* out, u32* bins_out) {
    __shared__ Job job;
    __shared__ u32 bins[LANES * 256];
    __shared__ u64 words[WORDS];
    __shared__ float factor[5];  // gradient, first and second bias correction, learning rate, 1 - beta1
    const u32 tid = threadIdx.x, param = blocks[blockIdx.x].x;
    const u64 start = (u64)blocks[blockIdx.x].y * CHUNK;

    for (u32 i = tid; i < LANES * 256; i += THREADS) bins[i] = 0;
    for (u32 i = tid; i < WORDS; i += THREADS) words[i] = 0;
    if (tid == 0) {
        job = jobs[param];
        double t = job.step ? (double)*(const float*)job.step + 1.0 : job.t;
        factor[0] = (float)(job.sign / (job.scale_at ? (double)*(const float*)job.scale_at : 1.0));
        factor[1] = (float)(1.0 / (1.0 - pow(job.beta1, t)));
        factor[2] = (float)(1.0 / (1.0 - pow(job.beta2, t)));
        factor[3] = job.lr_at ? *(const float*)job.lr_at : (float)job.lr;
        factor[4] = (float)(1.0 - job.beta1);
    }
    __syncthreads();

    const u64 stop = start + CHUNK < job.numel ? start + CHUNK : job.numel;
    const float lr = factor[3], rest1 = factor[4], beta2 = (float)job.beta2, rest2 = (float)(1.0 - job.beta2);
    const float decay = (float)job.decay, eps = (float)job.eps;
    const bool adam = job.form & 1, l2 = job.form & 2, idle = job.form & 4;
    const u32 w_kind = job.kinds & 15u;

    u32 nan[LANES] = {0}, posinf[LANES] = {0}, neginf[LANES] = {0}, zeros[LANES] = {0};
    u32 low[LANES] = {0}, high[LANES] = {0};
    u64 first[LANES] = {0};
    double square[LANES] = {0}, moved = 0;
    u64 largest = 0;
    u32 below = 0, lost = 0, skipped = 0, over = 0, under = 0;

    for (u64 i = start + tid; i < stop; i += THREADS) {
        float x[LANES];
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            x[l] = load(job.at[l], (job.kinds >> (4 * l)) & 15u, i);
            if (l == 1) x[l] *= factor[0];
            const u32 bits = __float_as_uint(x[l]), exponent = (bits >> 23) & 255u;
            if (exponent == 255u) {
                if (bits & 0x7FFFFFu) nan[l]++;
                else if (bits >> 31) neginf[l]++;
                else posinf[l]++;
                first[l] = highest(first[l], ~i);
                continue;
            }
            if (!(bits << 1)) zeros[l]++;
            else atomicAdd(&bins[l * 256 + exponent], 1u);
            const u32 up = ordered(x[l]), down = ordered(-x[l]);
            high[l] = up > high[l] ? up : high[l];
            low[l] = down > low[l] ? down : low[l];
            square[l] += (double)x[l] * (double)x[l];
        }
        if (!adam) continue;
        float after = x[0];
        if (!idle) {
            const float grad = l2 ? fmaf(decay, x[0], x[1]) : x[1];
            const float m = fmaf(rest1, grad - x[2], x[2]);
            float v = fmaf(rest2 * grad, grad, beta2 * x[3]);
            if (job.at[4]) v = fmaxf(v, load(job.at[4], (job.kinds >> 16) & 15u, i));
            const float root = sqrtf(v * factor[2]);
            const float ratio = m * factor[1] / (root + eps);
            const float each = l2 ? ratio : fmaf(decay, x[0], ratio);
            const float change = lr * each;
            if (root < eps) below++;
            if (isfinite(change)) {
                moved += (double)change * (double)change;
                after = stored(x[0] - change, w_kind);
                if (change != 0.0f && isfinite(x[0]) && after == x[0]) lost++;
                const float size = fabsf(each);
                if (size > 0.0f && isfinite(size))
                    largest = highest(largest, ((u64)__float_as_uint(size) << 32) | (0xFFFFFFFFu - (u32)i));
            } else skipped++;
        }
        const float size = fabsf(after);
        if (isfinite(size)) {
            if (size >= 65520.0f) over++;
            if (size > 0.0f && size <= 2.98023223876953125e-8f) under++;  // 2^-25
        }
    }

    // Sums and maxima of each warp, then of the block, then of the param.
    const bool leads = (tid & 31u) == 0;
#pragma unroll
    for (int l = 0; l < LANES; l++) {
        u64* word = words + l * LANE_WORDS;
        const u32 counts[4] = {warp_sum(nan[l]), warp_sum(posinf[l]), warp_sum(neginf[l]), warp_sum(zeros[l])};
        const u64 most[3] = {warp_highest(first[l]), warp_highest(low[l]), warp_highest(high[l])};
        const double sum = warp_sum(square[l]);
        if (leads) {
            for (int k = 0; k < 4; k++) if (counts[k]) atomicAdd(word + k, (u64)counts[k]);
            for (int k = 0; k < 3; k++) if (most[k]) atomicMax(word + 4 + k, most[k]);
            atomicAdd((double*)(word + 7), sum);
        }
    }
    {
        const double sum = warp_sum(moved);
        const u64 most = warp_highest(largest);
        const u32 counts[5] = {warp_sum(below), warp_sum(lost), warp_sum(skipped), warp_sum(over), warp_sum(under)};
        if (leads) {
            atomicAdd((double*)(words + UPDATE_AT), sum);
            atomicMax(words + UPDATE_AT + 1, most);
            for (int k = 0; k < 5; k++) if (counts[k]) atomicAdd(words + UPDATE_AT + 2 + k, (u64)counts[k]);
        }
    }
    __syncthreads();

    u64* mine = out + (u64)param * WORDS;
    for (u32 i = tid; i < WORDS; i += THREADS) {
        if (!words[i]) continue;
        const u32 kind = i < UPDATE_AT ? i % LANE_WORDS : 8 + i - UPDATE_AT;
        if (kind == 7 || kind == 8) atomicAdd((double*)(mine + i), __longlong_as_double((long long)words[i]));
        else if ((kind >= 4 && kind <= 6) || kind == 9) atomicMax(mine + i, words[i]);
        else atomicAdd(mine + i, words[i]);
    }
    for (u32 i = tid; i < LANES * 256; i += THREADS)
        if (bins[i]) atomicAdd(bins_out + (u64)param * LANES * 256 + i, bins[i]);
}
