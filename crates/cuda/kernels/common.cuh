// What all kernels share: reductions in a fixed order, and the storage types of weights.
//
// Compiled with -fmad=false: a product and a sum are fused only where fmaf says so, so that two kernels that share a function give
// the same bits.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

// Every kernel begins with this: the next one may be placed beside it already, and nothing that others write is touched before all
// that was started earlier is done. Weights, which nobody writes, may be asked for between the two.
#if __CUDA_ARCH__ >= 900
#define LET_NEXT_BEGIN asm volatile("griddepcontrol.launch_dependents;");
#define WAIT_FOR_EARLIER asm volatile("griddepcontrol.wait;" ::: "memory");
#else
#define LET_NEXT_BEGIN
#define WAIT_FOR_EARLIER
#endif
#define BEGIN LET_NEXT_BEGIN WAIT_FOR_EARLIER

// -inf, as the empty maximum.
#define NEGATIVE_INFINITY __int_as_float(0xff800000)
#define POSITIVE_INFINITY __int_as_float(0x7f800000)

__device__ __forceinline__ float half_bits(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ u16 to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float bf16_bits(u16 bits) { return __uint_as_float((u32)bits << 16); }

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

// The sum over `lanes` neighbouring lanes (a power of two), the same in each.
__device__ __forceinline__ float lane_sum(float x, int lanes = 32) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

__device__ __forceinline__ float lane_max(float x) {
    for (int apart = 16; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

// The sum over a block of up to 1024 threads (a multiple of 32), the same in each.
__device__ __forceinline__ float block_sum(float x) {
    __shared__ float parts[32];
    x = lane_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < blockDim.x / 32; i++) sum += parts[i];
    return sum;
}

__device__ __forceinline__ float block_max(float x) {
    __shared__ float parts[32];
    x = lane_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    float most = parts[0];
    for (int i = 1; i < blockDim.x / 32; i++) most = fmaxf(most, parts[i]);
    return most;
}

// Orders floats as f32::total_cmp does.
__device__ __forceinline__ int total_order(float x) {
    int bits = __float_as_int(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

// The place of the largest of `count` keys, the lower of equals; the same in every thread of the block.
__device__ __forceinline__ int block_largest(const int *keys, int count) {
    __shared__ int best_key[32], best_at[32];
    int key = (int)0x80000000, at = 0x7fffffff;
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        if (keys[i] > key || at == 0x7fffffff) key = keys[i], at = i;
    for (int apart = 16; apart > 0; apart /= 2) {
        int other = __shfl_xor_sync(0xffffffffu, key, apart), place = __shfl_xor_sync(0xffffffffu, at, apart);
        if (other > key || (other == key && place < at)) key = other, at = place;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) best_key[threadIdx.x / 32] = key, best_at[threadIdx.x / 32] = at;
    __syncthreads();
    key = best_key[0], at = best_at[0];
    for (int i = 1; i < blockDim.x / 32; i++)
        if (best_key[i] > key || (best_key[i] == key && best_at[i] < at)) key = best_key[i], at = best_at[i];
    return at;
}

// GatedAct: 0 silu, 1 tanh form of GELU, 2 GELU itself, 3 clamped.
__device__ __forceinline__ float gated(int kind, float limit, float alpha, float gate, float up) {
    if (kind == 0) return silu(gate) * up;
    if (kind == 1) {
        float inner = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
        return 0.5f * gate * (1.0f + tanhf(inner)) * up;
    }
    if (kind == 2) return 0.5f * gate * (1.0f + erff(gate * 0.70710678118f)) * up;
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
    return (up + 1.0f) * gate * sigmoid(alpha * gate);
}

// Storage types, in the order of weights::DType::MATRICES.
enum { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ3_S, MXFP4 };

__device__ const signed char IQ4_CODES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
__device__ const signed char MXFP4_CODES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Four bytes at an address of any alignment, or at an even one.
__device__ __forceinline__ u32 bytes4(const u8 *p) { return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24; }
__device__ __forceinline__ u32 even4(const u8 *p) { return ((const u16 *)p)[0] | (u32)((const u16 *)p)[1] << 16; }
__device__ __forceinline__ u16 even2(const u8 *p) { return *(const u16 *)p; }

// The 6-bit scale and minimum of group `g` of Q4_K and Q5_K.
__device__ __forceinline__ void k_scales(const u8 *packed, int g, float &scale, float &least) {
    if (g < 4) {
        scale = packed[g] & 63;
        least = packed[g + 4] & 63;
    } else {
        scale = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
        least = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    }
}

// Eight weights of a row: the `chunk`-th of them in an order of the type's own. `at` receives where the first four and the last
// four of them stand in the row.
template <int T> __device__ __forceinline__ void weights8(const u8 *row, int chunk, float *w, int *at);

#define WEIGHTS8(T) template <> __device__ __forceinline__ void weights8<T>(const u8 *row, int chunk, float *w, int *at)

WEIGHTS8(F32) {
    at[0] = 8 * chunk, at[1] = at[0] + 4;
    float4 a = __ldg((const float4 *)row + 2 * chunk), b = __ldg((const float4 *)row + 2 * chunk + 1);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}
WEIGHTS8(F16) {
    at[0] = 8 * chunk, at[1] = at[0] + 4;
    uint4 v = __ldg((const uint4 *)row + chunk);
    u32 words[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; i++) w[2 * i] = half_bits(words[i]), w[2 * i + 1] = half_bits(words[i] >> 16);
}
WEIGHTS8(BF16) {
    at[0] = 8 * chunk, at[1] = at[0] + 4;
    uint4 v = __ldg((const uint4 *)row + chunk);
    u32 words[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; i++) w[2 * i] = __uint_as_float(words[i] << 16), w[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
}

// Blocks of 32 whose byte j holds elements j and j + 16.
#define HALVES(BYTES)                                                                                                  \
    const u8 *block = row + (i64)(chunk / 4) * BYTES;                                                                  \
    const int t = chunk % 4;                                                                                           \
    at[0] = chunk / 4 * 32 + 4 * t, at[1] = at[0] + 16;

WEIGHTS8(Q4_0) {
    HALVES(18)
    float d = half_bits(even2(block));
    u32 q = even4(block + 2 + 4 * t);
    for (int i = 0; i < 4; i++) {
        w[i] = d * (float)((int)(q >> 8 * i & 15) - 8);
        w[i + 4] = d * (float)((int)(q >> (8 * i + 4) & 15) - 8);
    }
}
WEIGHTS8(Q4_1) {
    HALVES(20)
    float d = half_bits(even2(block)), m = half_bits(even2(block + 2));
    u32 q = even4(block + 4 + 4 * t);
    for (int i = 0; i < 4; i++) {
        w[i] = fmaf(d, (float)(q >> 8 * i & 15), m);
        w[i + 4] = fmaf(d, (float)(q >> (8 * i + 4) & 15), m);
    }
}
WEIGHTS8(Q5_0) {
    HALVES(22)
    float d = half_bits(even2(block));
    u32 high = even4(block + 2), q = even4(block + 6 + 4 * t);
    for (int i = 0; i < 4; i++) {
        w[i] = d * (float)((int)((q >> 8 * i & 15) | (high >> (4 * t + i) & 1) << 4) - 16);
        w[i + 4] = d * (float)((int)((q >> (8 * i + 4) & 15) | (high >> (16 + 4 * t + i) & 1) << 4) - 16);
    }
}
WEIGHTS8(Q5_1) {
    HALVES(24)
    float d = half_bits(even2(block)), m = half_bits(even2(block + 2));
    u32 high = even4(block + 4), q = even4(block + 8 + 4 * t);
    for (int i = 0; i < 4; i++) {
        w[i] = fmaf(d, (float)((q >> 8 * i & 15) | (high >> (4 * t + i) & 1) << 4), m);
        w[i + 4] = fmaf(d, (float)((q >> (8 * i + 4) & 15) | (high >> (16 + 4 * t + i) & 1) << 4), m);
    }
}
WEIGHTS8(Q8_0) {
    const u8 *block = row + (i64)(chunk / 4) * 34;
    at[0] = 8 * chunk, at[1] = at[0] + 4;
    float d = half_bits(even2(block));
    const u8 *q = block + 2 + 8 * (chunk % 4);
    u32 low = even4(q), high = even4(q + 4);
    for (int i = 0; i < 4; i++) {
        w[i] = d * (float)(signed char)(low >> 8 * i);
        w[i + 4] = d * (float)(signed char)(high >> 8 * i);
    }
}
WEIGHTS8(IQ4_NL) {
    HALVES(18)
    float d = half_bits(even2(block));
    u32 q = even4(block + 2 + 4 * t);
    for (int i = 0; i < 4; i++) {
        w[i] = d * (float)IQ4_CODES[q >> 8 * i & 15];
        w[i + 4] = d * (float)IQ4_CODES[q >> (8 * i + 4) & 15];
    }
}
WEIGHTS8(MXFP4) {
    HALVES(17)
    u32 e = block[0];
    // Half of 2^(e - 127), subnormal for the smallest.
    float d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    u32 q = bytes4(block + 1 + 4 * t);
    for (int i = 0; i < 4; i++) {
        w[i] = d * (float)MXFP4_CODES[q >> 8 * i & 15];
        w[i + 4] = d * (float)MXFP4_CODES[q >> (8 * i + 4) & 15];
    }
}

// Blocks of 256: `chunk` 0..32 of a block.
#define SUPER(BYTES)                                                                                                   \
    const u8 *block = row + (i64)(chunk / 32) * BYTES;                                                                 \
    const int t = chunk % 32, first = chunk / 32 * 256;

WEIGHTS8(Q2_K) {
    SUPER(84)
    // Half h, two of its four runs of 32, four neighbours in each.
    const int h = t / 16, pair = t / 8 % 2, l = t % 8 * 4;
    at[0] = first + 128 * h + 64 * pair + l, at[1] = at[0] + 32;
    float d = half_bits(even2(block + 80)), dmin = half_bits(even2(block + 82));
    u32 q = even4(block + 16 + 32 * h + l) >> 4 * pair;
    int group = 8 * h + 4 * pair + l / 16;
    u8 a = block[group], b = block[group + 2];
    float scale_a = d * (float)(a & 15), least_a = dmin * (float)(a >> 4);
    float scale_b = d * (float)(b & 15), least_b = dmin * (float)(b >> 4);
    for (int i = 0; i < 4; i++) {
        w[i] = fmaf(scale_a, (float)(q >> 8 * i & 3), -least_a);
        w[i + 4] = fmaf(scale_b, (float)(q >> (8 * i + 2) & 3), -least_b);
    }
}
WEIGHTS8(Q3_K) {
    SUPER(110)
    const int h = t / 16, pair = t / 8 % 2, l = t % 8 * 4;
    at[0] = first + 128 * h + 64 * pair + l, at[1] = at[0] + 32;
    float d = half_bits(even2(block + 108));
    u32 q = even4(block + 32 + 32 * h + l) >> 4 * pair, high = even4(block + l) >> (4 * h + 2 * pair);
    const u8 *packed = block + 96;
    float scale[2];
    for (int k = 0; k < 2; k++) {
        int g = 8 * h + 4 * pair + l / 16 + 2 * k;
        int bits = (packed[g % 8] >> (g / 8 * 4) & 15) | (packed[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
        scale[k] = d * (float)(bits - 32);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = scale[0] * (float)((int)((q >> 8 * i & 3) | (high >> 8 * i & 1) << 2) - 4);
        w[i + 4] = scale[1] * (float)((int)((q >> (8 * i + 2) & 3) | (high >> (8 * i + 1) & 1) << 2) - 4);
    }
}
WEIGHTS8(Q4_K) {
    SUPER(144)
    const int p = t / 8, l = t % 8 * 4;
    at[0] = first + 64 * p + l, at[1] = at[0] + 32;
    u32 both = *(const u32 *)block;
    float d = half_bits(both), dmin = half_bits(both >> 16);
    u32 q = *(const u32 *)(block + 16 + 32 * p + l);
    float sa, ma, sb, mb;
    k_scales(block + 4, 2 * p, sa, ma);
    k_scales(block + 4, 2 * p + 1, sb, mb);
    sa *= d, ma *= dmin, sb *= d, mb *= dmin;
    for (int i = 0; i < 4; i++) {
        w[i] = fmaf(sa, (float)(q >> 8 * i & 15), -ma);
        w[i + 4] = fmaf(sb, (float)(q >> (8 * i + 4) & 15), -mb);
    }
}
WEIGHTS8(Q5_K) {
    SUPER(176)
    const int p = t / 8, l = t % 8 * 4;
    at[0] = first + 64 * p + l, at[1] = at[0] + 32;
    u32 both = *(const u32 *)block;
    float d = half_bits(both), dmin = half_bits(both >> 16);
    u32 q = *(const u32 *)(block + 48 + 32 * p + l), high = *(const u32 *)(block + 16 + l) >> 2 * p;
    float sa, ma, sb, mb;
    k_scales(block + 4, 2 * p, sa, ma);
    k_scales(block + 4, 2 * p + 1, sb, mb);
    sa *= d, ma *= dmin, sb *= d, mb *= dmin;
    for (int i = 0; i < 4; i++) {
        w[i] = fmaf(sa, (float)((q >> 8 * i & 15) | (high >> 8 * i & 1) << 4), -ma);
        w[i + 4] = fmaf(sb, (float)((q >> (8 * i + 4) & 15) | (high >> (8 * i + 1) & 1) << 4), -mb);
    }
}
WEIGHTS8(Q6_K) {
    SUPER(210)
    const int h = t / 16, r = t / 8 % 2, l = t % 8 * 4;
    at[0] = first + 128 * h + 32 * r + l, at[1] = at[0] + 64;
    float d = half_bits(even2(block + 208));
    u32 low = even4(block + 64 * h + 32 * r + l), high = even4(block + 128 + 32 * h + l) >> 2 * r;
    int group = 8 * h + 2 * r + l / 16;
    float sa = d * (float)(signed char)block[192 + group], sb = d * (float)(signed char)block[192 + group + 4];
    for (int i = 0; i < 4; i++) {
        w[i] = sa * (float)((int)((low >> 8 * i & 15) | (high >> 8 * i & 3) << 4) - 32);
        w[i + 4] = sb * (float)((int)((low >> (8 * i + 4) & 15) | (high >> (8 * i + 4) & 3) << 4) - 32);
    }
}
WEIGHTS8(IQ4_XS) {
    SUPER(136)
    const int g = t / 4, j = t % 4 * 4;
    at[0] = first + 32 * g + j, at[1] = at[0] + 16;
    u32 bits = (block[4 + g / 2] >> (g % 2 * 4) & 15) | (even2(block + 2) >> 2 * g & 3) << 4;
    float d = half_bits(even2(block)) * (float)((int)bits - 32);
    u32 q = even4(block + 8 + 16 * g + j);
    for (int i = 0; i < 4; i++) {
        w[i] = d * (float)IQ4_CODES[q >> 8 * i & 15];
        w[i + 4] = d * (float)IQ4_CODES[q >> (8 * i + 4) & 15];
    }
}

#include "iq3_s_grid.cuh"

WEIGHTS8(IQ3_S) {
    SUPER(110)
    at[0] = first + 8 * t, at[1] = at[0] + 4;
    const int group = t / 4;
    float d = half_bits(even2(block)) * (float)(1 + 2 * (block[106 + group / 2] >> (group % 2 * 4) & 15));
    u32 signs = block[74 + t], high = block[66 + t / 4];
    for (int k = 0; k < 2; k++) {
        int i = 2 * t + k;
        u32 four = IQ3_S_GRID[block[2 + i] | (high >> (i % 8) & 1) << 8];
        for (int j = 0; j < 4; j++) {
            float value = d * (float)(four >> 8 * j & 255);
            w[4 * k + j] = signs >> (4 * k + j) & 1 ? -value : value;
        }
    }
}

// Asks for a row to be brought near.
__device__ __forceinline__ void fetch(const u8 *row, i64 bytes, int lane) {
    for (i64 at = lane * 128; at < bytes; at += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + at));
}

// One element of a row of plain floats.
template <int T> __device__ __forceinline__ float element(const u8 *row, i64 i) {
    if (T == F32) return ((const float *)row)[i];
    u16 bits = ((const u16 *)row)[i];
    return T == F16 ? half_bits(bits) : bf16_bits(bits);
}
