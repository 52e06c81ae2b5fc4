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
    u64 unless_at;    // address of a float32: where it is finite nothing is counted; 0: counted whatever happens
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

__device__ u32 warp_highest(u32 x) {
    for (int d = 16; d; d >>= 1) {
        const u32 other = __shfl_xor_sync(0xFFFFFFFFu, x, d);
        x = other > x ? other : x;
    }
    return x;
}

// What a thread has come to. What is rare is added to the block's words at once instead.
struct Totals {
    float low[LANES], high[LANES];  // of the finite elements; low above high where there was none
    double square[LANES], moved;
    float largest;
    u32 largest_at, below, lost, under;

    __device__ Totals() : moved(0), largest(0), largest_at(0), below(0), lost(0), under(0) {
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            low[l] = __uint_as_float(0x7F800000u);
            high[l] = -low[l];
            square[l] = 0;
        }
    }
};

// The sum of squares of a few numbers: in float32 where the greatest can neither overflow nor vanish there.
template <int N>
__device__ double squares(const float (&x)[N]) {
    float greatest = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) greatest = fmaxf(greatest, fabsf(x[k]));
    if (N > 1 && greatest >= 2.168404344971009e-19f && greatest < 4.611686018427388e18f) {  // 2^-62, 2^62
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) sum = fmaf(x[k], x[k], sum);
        return (double)sum;
    }
    if (greatest == 0.0f) return 0.0;
    double sum = 0;
#pragma unroll
    for (int k = 0; k < N; k++) sum += (double)x[k] * (double)x[k];
    return sum;
}

__device__ __noinline__ void rare(u64* words, u32 bits, u64 i) {
    atomicAdd(words + ((bits & 0x7FFFFFu) ? 0 : (bits >> 31) ? 2 : 1), (u64)1);
    atomicMax(words + 4, ~i);
}

// Elements i to i + N - 1 of every lane.
template <int N>
__device__ __forceinline__ void count(
    Totals& all, const Job& job, const float* factor, u32* bins, u64* words, u64 i, float (&x)[LANES][N], const float (&v_max)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) x[1][k] *= factor[0];
#pragma unroll
    for (int l = 0; l < LANES; l++) {
        float finite[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            const u32 bits = __float_as_uint(x[l][k]), exponent = (bits >> 23) & 255u;
            finite[k] = 0.0f;
            if (exponent == 255u) {
                rare(words + l * LANE_WORDS, bits, i + k);
                continue;
            }
            finite[k] = x[l][k];
            atomicAdd(&bins[l * 256 + ((bits << 1) ? exponent : 255u)], 1u);
            all.low[l] = fminf(all.low[l], x[l][k]);
            all.high[l] = fmaxf(all.high[l], x[l][k]);
        }
        all.square[l] += squares(finite);
    }
    if (!(job.form & 1)) return;
    const bool l2 = job.form & 2, idle = job.form & 4, largest_v = job.at[4];
    const u32 w_kind = job.kinds & 15u;
    const float lr = factor[3], rest1 = factor[4], beta2 = factor[5], rest2 = factor[6], decay = factor[7], eps = factor[8];
    float moved[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float w = x[0][k];
        float after = w;
        moved[k] = 0.0f;
        if (!idle) {
            const float grad = l2 ? fmaf(decay, w, x[1][k]) : x[1][k];
            const float m = fmaf(rest1, grad - x[2][k], x[2][k]);
            float v = fmaf(rest2 * grad, grad, beta2 * x[3][k]);
            if (largest_v) v = fmaxf(v, v_max[k]);
            const float root = sqrtf(v * factor[2]);
            const float ratio = m * factor[1] / (root + eps);
            const float each = l2 ? ratio : fmaf(decay, w, ratio);
            const float change = lr * each;
            all.below += root < eps;
            if (isfinite(change)) {
                moved[k] = change;
                after = stored(w - change, w_kind);
                all.lost += change != 0.0f && isfinite(w) && after == w;
                const float size = fabsf(each);
                if (size > all.largest && isfinite(size)) {
                    all.largest = size;
                    all.largest_at = (u32)i + k;
                }
            } else atomicAdd(words + UPDATE_AT + 4, (u64)1);
        }
        const float size = fabsf(after);
        if (size >= 65520.0f && isfinite(size)) atomicAdd(words + UPDATE_AT + 5, (u64)1);
        all.under += size > 0.0f && size <= 2.98023223876953125e-8f;  // 2^-25
    }
    all.moved += squares(moved);
}

__device__ void one(Totals& all, const Job& job, const float* factor, u32* bins, u64* words, u64 i) {
    float x[LANES][1], most[1] = {0.0f};
#pragma unroll
    for (int l = 0; l < LANES; l++) x[l][0] = load(job.at[l], (job.kinds >> (4 * l)) & 15u, i);
    if (job.at[4]) most[0] = load(job.at[4], (job.kinds >> 16) & 15u, i);
    count<1>(all, job, factor, bins, words, i, x, most);
}

// Four neighbours, whose address suits a load of all.
__device__ __forceinline__ void load4(float (&x)[4], u64 at, u32 kind, u64 i) {
    if (!at) {
        x[0] = x[1] = x[2] = x[3] = 0.0f;
    } else if (kind == 0) {
        const float4 all = *(const float4*)(at + 4 * i);
        x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
    } else {
        const uint2 all = *(const uint2*)(at + 2 * i);
        const u32 half[4] = {all.x & 0xFFFFu, all.x >> 16, all.y & 0xFFFFu, all.y >> 16};
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] = kind == 1 ? __uint_as_float(half[k] << 16) : from_half(half[k]);
    }
}

// True where every lane can be loaded by fours from `start` on.
__device__ bool vectors(const Job& job, u64 start) {
    u64 off = 0;
#pragma unroll
    for (int l = 0; l < 5; l++) off |= job.at[l] & (((job.kinds >> (4 * l)) & 15u) ? 7u : 15u);
    return !off;
}

// Four blocks at least are to fit on a multiprocessor, which hides the waits for memory best.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
count_params(const Job* jobs, const uint2* blocks, u64* out, u32* bins_out) {
    __shared__ Job job;
    __shared__ u32 bins[LANES * 256];
    __shared__ u64 words[WORDS];
    __shared__ float factor[9];  // gradient, both bias corrections, learning rate, 1 - beta1, beta2, 1 - beta2, decay, eps
    const u32 tid = threadIdx.x, param = blocks[blockIdx.x].x;
    const u64 start = (u64)blocks[blockIdx.x].y * CHUNK;
    const u64 unless_at = jobs[param].unless_at;
    if (unless_at && isfinite(*(const float*)unless_at)) return;

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
        factor[5] = (float)job.beta2;
        factor[6] = (float)(1.0 - job.beta2);
        factor[7] = (float)job.decay;
        factor[8] = (float)job.eps;
    }
    __syncthreads();

    const u64 stop = start + CHUNK < job.numel ? start + CHUNK : job.numel;
    Totals all;
    if (vectors(job, start)) {
        // Four elements of each lane a turn, all of them on their way at once.
        u64 i = start + 4u * tid;
        for (; i + 4 <= stop; i += 4u * THREADS) {
            float x[LANES][4], most[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int l = 0; l < LANES; l++) load4(x[l], job.at[l], (job.kinds >> (4 * l)) & 15u, i);
            if (job.at[4]) load4(most, job.at[4], (job.kinds >> 16) & 15u, i);
            count<4>(all, job, factor, bins, words, i, x, most);
        }
        for (; i < stop; i++) one(all, job, factor, bins, words, i);
    } else {
        for (u64 i = start + tid; i < stop; i += THREADS) one(all, job, factor, bins, words, i);
    }

    // Sums and maxima of each warp, then of the block, then of the param.
    const bool leads = (tid & 31u) == 0;
#pragma unroll
    for (int l = 0; l < LANES; l++) {
        u64* word = words + l * LANE_WORDS;
        const bool any = all.high[l] >= all.low[l];
        const u32 low = warp_highest(any ? ordered(-all.low[l]) : 0u), high = warp_highest(any ? ordered(all.high[l]) : 0u);
        const double sum = warp_sum(all.square[l]);
        if (leads) {
            atomicMax(word + 5, (u64)low);
            atomicMax(word + 6, (u64)high);
            atomicAdd((double*)(word + 7), sum);
        }
    }
    {
        const u64 word = all.largest > 0.0f ? ((u64)__float_as_uint(all.largest) << 32) | (0xFFFFFFFFu - all.largest_at) : 0;
        const double sum = warp_sum(all.moved);
        const u64 most = warp_highest(word);
        const u32 below = warp_sum(all.below), lost = warp_sum(all.lost), under = warp_sum(all.under);
        if (leads) {
            atomicAdd((double*)(words + UPDATE_AT), sum);
            atomicMax(words + UPDATE_AT + 1, most);
            if (below) atomicAdd(words + UPDATE_AT + 2, (u64)below);
            if (lost) atomicAdd(words + UPDATE_AT + 3, (u64)lost);
            if (under) atomicAdd(words + UPDATE_AT + 6, (u64)under);
        }
    }
    __syncthreads();
    // Zeros were counted in the last bin, which no finite exponent takes.
    for (u32 l = tid; l < LANES; l += THREADS) {
        words[l * LANE_WORDS + 3] = bins[l * 256 + 255];
        bins[l * 256 + 255] = 0;
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
