// Enough of CUDA to run a kernel on the CPU, one thread a block: what its elements come to, not how threads share them.
#include <cmath>
#include <cstdint>
#include <cstring>

#define __device__ inline
#define __forceinline__
#define __noinline__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define THREADS 1

struct uint2 { unsigned x, y; };
struct float4 { float x, y, z, w; };
struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx;
static inline void __syncthreads() {}

template <class To, class From> static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
// The other threads of the warp have nothing.
template <class T> static inline T __shfl_xor_sync(unsigned, T, int) { return T(0); }
template <class T> static inline void atomicAdd(T* at, T x) { *at += x; }
template <class T> static inline void atomicMax(T* at, T x) { if (x > *at) *at = x; }
using std::isfinite;

#include "count_params.cu"

extern "C" void run(const void* jobs, const void* blocks, unsigned count, void* out, void* bins) {
    for (unsigned i = 0; i < count; i++) {
        blockIdx.x = i;
        count_params((const Job*)jobs, (const uint2*)blocks, (u64*)out, (u32*)bins);
    }
}
