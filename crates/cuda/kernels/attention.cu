// Keys and values in blocks of 32 positions: storing, choosing, attending.
//
// A block of cache holds [heads][32][dim]. Row r belongs to sequence sequences[r]; the block of its positions 32 i .. is
// table[offsets[sequence] + i].
#include "common.cuh"

#define BLOCK 32
// Positions whose softmax is one piece, aligned to absolute position; pieces are merged in order. What a row gets depends on nothing
// but its position and what is stored.
#define PIECE 64
#define THREADS 128
// Channels of a value that one block of threads sums up: two a thread.
#define WIDTH 256

struct Tables {
    const int *positions, *sequences, *table, *offsets;
};

__device__ __forceinline__ i64 block_of(const Tables &t, int row, int position) {
    return (u32)t.table[t.offsets[t.sequences[row]] + position / BLOCK];
}

template <typename S> __device__ __forceinline__ float read(S x);
template <> __device__ __forceinline__ float read<float>(float x) { return x; }
template <> __device__ __forceinline__ float read<u16>(u16 x) { return half_bits(x); }

__device__ __forceinline__ void write(float *to, float x) { *to = x; }
__device__ __forceinline__ void write(u16 *to, float x) { *to = to_half(x); }

template <typename S> __device__ __forceinline__ void store(const float *x, S *cache, const Tables &t, int heads, int dim) {
    const int row = blockIdx.x, position = t.positions[row];
    S *block = cache + block_of(t, row, position) * heads * BLOCK * dim;
    for (int i = threadIdx.x; i < heads * dim; i += blockDim.x)
        write(block + (i64)(i / dim * BLOCK + position % BLOCK) * dim + i % dim, x[(i64)row * heads * dim + i]);
}

// Keys, and values where the grid's second dimension has two. A block of threads a row of either.
#define APPEND(K, V, KN, VN)                                                                                           \
    extern "C" __global__ void append_##KN##_##VN(const float *k, const float *v, K *keys, V *values, const Tables t, int heads, int k_dim, int v_dim) { \
        BEGIN                                                                                                          \
        if (blockIdx.y == 0) store(k, keys, t, heads, k_dim);                                                          \
        else store(v, values, t, heads, v_dim);                                                                        \
    }

APPEND(float, float, F32, F32)
APPEND(float, u16, F32, F16)
APPEND(u16, float, F16, F32)
APPEND(u16, u16, F16, F16)

struct Attention {
    Tables t;
    const float *q;
    const void *k, *v;
    const float *sinks;    // [heads], or null
    const float *chosen;   // [rows, choices * count]: the blocks a row reads; or null
    float *to;
    float *parts;          // Of each row, head and piece: maximum, sum, v_dim values; null: all pieces here
    int rows, heads, kv_heads, k_dim, v_dim;
    int window;            // 0: none
    int choices, count, chosen_block, tail;
    int pieces;            // pieces a row has room for in `parts`
    float scale;
};

struct State {
    float most, sum;
};

// Joins (most, sum, values) of a later piece to those so far; returns what both are multiplied with.
__device__ __forceinline__ float2 join(State &all, float most, float sum) {
    if (sum == 0.0f) return make_float2(1.0f, 0.0f);
    float larger = fmaxf(all.most, most);
    float2 by = make_float2(all.sum == 0.0f ? 0.0f : expf(all.most - larger), expf(most - larger));
    all.sum = fmaf(sum, by.y, all.sum * by.x);
    all.most = larger;
    return by;
}

__device__ __forceinline__ bool reads(const Attention &a, const float *own, int at, int position) {
    if (a.tail && position >= (at + 1) / a.chosen_block * a.chosen_block) return true;
    float block = (float)(position / a.chosen_block);
    for (int i = 0; i < a.count; i++)
        if (own[i] == block) return true;
    return false;
}

// Up to GROUP query heads of one kv head of one row, WIDTH channels of their values. Grid: (kv heads x groups x widths, rows, pieces
// or 1). Shared memory: GROUP * (k_dim + PIECE) floats.
template <typename K, typename V, int GROUP> __device__ __forceinline__ void attend(const Attention &a) {
    constexpr int TOGETHER = GROUP == 8 ? 2 : 4;
    extern __shared__ float shared[];
    __shared__ float most_of[GROUP], sum_of[GROUP];
    float *q = shared, *scores = shared + GROUP * a.k_dim;
    const int row = blockIdx.y, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int share = a.heads / a.kv_heads, groups = (share + GROUP - 1) / GROUP, widths = (a.v_dim + WIDTH - 1) / WIDTH;
    const int width = blockIdx.x % widths, group = blockIdx.x / widths % groups, kv_head = blockIdx.x / widths / groups;
    const int first_head = kv_head * share + group * GROUP, own_heads = min(GROUP, share - group * GROUP);
    const int position = a.t.positions[row], low = a.window ? max(0, position + 1 - a.window) : 0;
    const int first_piece = low / PIECE, last_piece = position / PIECE;
    int piece = first_piece, end = last_piece;
    if (a.parts) {
        piece = end = first_piece + blockIdx.z;
        if (piece > last_piece) return;
    }
    for (int i = tid; i < own_heads * a.k_dim; i += THREADS) q[i] = a.q[((i64)row * a.heads + first_head) * a.k_dim + i];
    const float *own = a.chosen ? a.chosen + (i64)row * a.choices * a.count + kv_head * a.choices / a.kv_heads * a.count : 0;
    State all[GROUP];
    float o[GROUP][2];
#pragma unroll
    for (int g = 0; g < GROUP; g++) all[g].most = NEGATIVE_INFINITY, all[g].sum = 0.0f, o[g][0] = o[g][1] = 0.0f;
    const int chunks = a.k_dim / 8;
    int lanes = 32;
    while (lanes > 1 && lanes > chunks) lanes /= 2;
    const bool aligned = a.k_dim % 8 == 0;
    if (!aligned) lanes = 32;
    const int d0 = width * WIDTH + tid;
    __syncthreads();
    for (; piece <= end; piece++) {
        const int from = max(low, piece * PIECE), to = min(position, piece * PIECE + PIECE - 1);
        // Scores: `lanes` lanes a position, TOGETHER positions of a lane at a time, so that loads overlap.
        const int apart = THREADS / lanes, part = tid % lanes;
        for (int base = piece * PIECE + tid / lanes; base - tid / lanes < piece * PIECE + PIECE; base += apart * TOGETHER) {
            float dot[TOGETHER][GROUP];
            bool seen[TOGETHER];
            const K *key[TOGETHER];
#pragma unroll
            for (int u = 0; u < TOGETHER; u++) {
                const int p = base + u * apart;
                seen[u] = p >= from && p <= to && (!own || reads(a, own, position, p));
                // What is not seen reads a position that is, and does not count.
                const int there = seen[u] ? p : position;
                key[u] = (const K *)a.k + ((block_of(a.t, row, there) * a.kv_heads + kv_head) * BLOCK + there % BLOCK) * a.k_dim;
#pragma unroll
                for (int g = 0; g < GROUP; g++) dot[u][g] = 0.0f;
            }
            if (aligned) {
                for (int c = part; c < chunks; c += lanes) {
                    float k[TOGETHER][8];
                    int at[2];
#pragma unroll
                    for (int u = 0; u < TOGETHER; u++) {
                        if (sizeof(K) == 4) weights8<F32>((const u8 *)key[u], c, k[u], at);
                        else weights8<F16>((const u8 *)key[u], c, k[u], at);
                    }
#pragma unroll
                    for (int g = 0; g < GROUP; g++) {
                        if (g >= own_heads) continue;
                        float4 x = *(const float4 *)(q + g * a.k_dim + 8 * c), y = *(const float4 *)(q + g * a.k_dim + 8 * c + 4);
#pragma unroll
                        for (int u = 0; u < TOGETHER; u++) {
                            const float *v = k[u];
                            float s = dot[u][g];
                            s = fmaf(v[0], x.x, s), s = fmaf(v[1], x.y, s), s = fmaf(v[2], x.z, s), s = fmaf(v[3], x.w, s);
                            s = fmaf(v[4], y.x, s), s = fmaf(v[5], y.y, s), s = fmaf(v[6], y.z, s), s = fmaf(v[7], y.w, s);
                            dot[u][g] = s;
                        }
                    }
                }
            } else {
                for (int c = part; c < a.k_dim; c += lanes)
#pragma unroll
                    for (int u = 0; u < TOGETHER; u++) {
                        float k = read<K>(key[u][c]);
#pragma unroll
                        for (int g = 0; g < GROUP; g++)
                            if (g < own_heads) dot[u][g] = fmaf(k, q[g * a.k_dim + c], dot[u][g]);
                    }
            }
#pragma unroll
            for (int u = 0; u < TOGETHER; u++) {
                const int p = base + u * apart;
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    float s = lane_sum(dot[u][g], lanes);
                    if (part == 0 && p < piece * PIECE + PIECE) scores[g * PIECE + p % PIECE] = seen[u] ? s * a.scale : NEGATIVE_INFINITY;
                }
            }
        }
        __syncthreads();
        // The softmax of each head: a warp a head.
        for (int g = warp; g < own_heads; g += THREADS / 32) {
            float most = NEGATIVE_INFINITY, sum = 0.0f;
            for (int i = lane; i < PIECE; i += 32) most = fmaxf(most, scores[g * PIECE + i]);
            most = lane_max(most);
            for (int i = lane; i < PIECE; i += 32) {
                float s = scores[g * PIECE + i], e = s == NEGATIVE_INFINITY ? 0.0f : expf(s - most);
                scores[g * PIECE + i] = e;
                sum += e;
            }
            sum = lane_sum(sum);
            if (lane == 0) most_of[g] = most, sum_of[g] = sum;
        }
        __syncthreads();
        float y[GROUP][2];
#pragma unroll
        for (int g = 0; g < GROUP; g++) y[g][0] = y[g][1] = 0.0f;
        const bool one = d0 < a.v_dim, two = d0 + THREADS < a.v_dim;
        if (one) {
            for (int b = from / BLOCK; b <= to / BLOCK; b++) {
                const int p0 = max(from, b * BLOCK), p1 = min(to, b * BLOCK + BLOCK - 1);
                const V *values = (const V *)a.v + ((block_of(a.t, row, p0) * a.kv_heads + kv_head) * BLOCK) * (i64)a.v_dim + d0;
#pragma unroll 8
                for (int p = p0; p <= p1; p++) {
                    const V *value = values + p % BLOCK * (i64)a.v_dim;
                    float v0 = read<V>(value[0]), v1 = two ? read<V>(value[THREADS]) : 0.0f;
#pragma unroll
                    for (int g = 0; g < GROUP; g++)
                        if (g < own_heads) {
                            float e = scores[g * PIECE + p % PIECE];
                            y[g][0] = fmaf(e, v0, y[g][0]), y[g][1] = fmaf(e, v1, y[g][1]);
                        }
                }
            }
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++)
            if (g < own_heads) {
                float2 by = join(all[g], most_of[g], sum_of[g]);
                o[g][0] = fmaf(y[g][0], by.y, o[g][0] * by.x), o[g][1] = fmaf(y[g][1], by.y, o[g][1] * by.x);
            }
        __syncthreads();
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        if (g >= own_heads) continue;
        const i64 head = (i64)row * a.heads + first_head + g;
        if (a.parts) {
            float *part = a.parts + (head * a.pieces + blockIdx.z) * (a.v_dim + 2);
            if (tid == 0 && width == 0) part[0] = all[g].most, part[1] = all[g].sum;
            if (d0 < a.v_dim) part[2 + d0] = o[g][0];
            if (d0 + THREADS < a.v_dim) part[2 + d0 + THREADS] = o[g][1];
            continue;
        }
        float by = 1.0f;
        if (a.sinks) by = join(all[g], a.sinks[first_head + g], 1.0f).x;
        float *to = a.to + head * a.v_dim;
        if (d0 < a.v_dim) to[d0] = o[g][0] * by / all[g].sum;
        if (d0 + THREADS < a.v_dim) to[d0 + THREADS] = o[g][1] * by / all[g].sum;
    }
}

#define ATTEND(K, V, KN, VN)                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS) attend_##KN##_##VN##_1(const Attention a) { BEGIN attend<K, V, 1>(a); }  \
    extern "C" __global__ void __launch_bounds__(THREADS) attend_##KN##_##VN##_4(const Attention a) { BEGIN attend<K, V, 4>(a); }  \
    extern "C" __global__ void __launch_bounds__(THREADS) attend_##KN##_##VN##_8(const Attention a) { BEGIN attend<K, V, 8>(a); }

ATTEND(float, float, F32, F32)
ATTEND(float, u16, F32, F16)
ATTEND(u16, float, F16, F32)
ATTEND(u16, u16, F16, F16)

// Merges the pieces of a row's head in order. Grid: (heads, rows).
extern "C" __global__ void __launch_bounds__(THREADS) attend_join(const Attention a) {
    BEGIN
    const int row = blockIdx.y, head = blockIdx.x, position = a.t.positions[row];
    const int low = a.window ? max(0, position + 1 - a.window) : 0, pieces = position / PIECE - low / PIECE + 1;
    const float *parts = a.parts + ((i64)row * a.heads + head) * a.pieces * (a.v_dim + 2);
    for (int d = threadIdx.x; d < a.v_dim; d += THREADS) {
        State all = {NEGATIVE_INFINITY, 0.0f};
        float o = 0.0f;
        for (int i = 0; i < pieces; i++) {
            const float *part = parts + (i64)i * (a.v_dim + 2);
            float2 by = join(all, part[0], part[1]);
            o = fmaf(part[2 + d], by.y, o * by.x);
        }
        float by = 1.0f;
        if (a.sinks) by = join(all, a.sinks[head], 1.0f).x;
        a.to[((i64)row * a.heads + head) * a.v_dim + d] = o * by / all.sum;
    }
}

struct Index {
    Tables t;
    const float *q;            // [rows, heads * dim]
    const void *k;             // one kv head
    int *keys;                 // [rows, choices, room]: scores in f32's total order
    const float *norm;         // mean key: [dim], or null
    const float *frequencies;
    int rows, heads, dim, block, room, local, half, interleaved;
    float eps, amplitude;
};

template <typename K> __device__ __forceinline__ const K *index_key(const Index &x, int row, int p) {
    return (const K *)x.k + (block_of(x.t, row, p) * BLOCK + p % BLOCK) * (i64)x.dim;
}

// A warp a (block, row, head): the largest q . k of its visible keys; the last `local` blocks come first.
template <typename K> __device__ __forceinline__ void largest_key(const Index &x) {
    const int b = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, row = blockIdx.y, head = blockIdx.z, lane = threadIdx.x % 32;
    const int position = x.t.positions[row], own = position / x.block;
    if (b > own) return;
    float most = NEGATIVE_INFINITY;
    if (b + x.local > own) {
        most = POSITIVE_INFINITY;
    } else {
        const float *q = x.q + ((i64)row * x.heads + head) * x.dim;
        for (int p = b * x.block; p < (b + 1) * x.block && p <= position; p++) {
            const K *key = index_key<K>(x, row, p);
            float dot = 0.0f;
            for (int d = lane; d < x.dim; d += 32) dot = fmaf(q[d], read<K>(key[d]), dot);
            most = fmaxf(most, lane_sum(dot));
        }
    }
    if (lane == 0) x.keys[((i64)row * x.heads + head) * x.room + b] = total_order(most);
}

// A warp a (complete block, row): the sum over heads of relu(q . k), k the normed and rotated mean of the block's keys.
// Shared memory: 2 * dim floats.
template <typename K> __device__ __forceinline__ void mean_key(const Index &x) {
    extern __shared__ float shared[];
    float *mean = shared, *key = shared + x.dim;
    const int b = blockIdx.x, row = blockIdx.y, lane = threadIdx.x;
    if (b >= (x.t.positions[row] + 1) / x.block) return;
    float squares = 0.0f;
    for (int d = lane; d < x.dim; d += 32) {
        float sum = 0.0f;
        for (int p = b * x.block; p < (b + 1) * x.block; p++) sum += read<K>(index_key<K>(x, row, p)[d]);
        mean[d] = sum / (float)x.block;
        squares = fmaf(mean[d], mean[d], squares);
    }
    float scale = 1.0f / sqrtf(lane_sum(squares) / (float)x.dim + x.eps);
    for (int d = lane; d < x.dim; d += 32) key[d] = mean[d] * scale * (x.norm ? x.norm[d] : 1.0f);
    __syncwarp();
    for (int f = lane; f < x.half; f += 32) {
        float sin, cos;
        sincosf((float)(b * x.block) * x.frequencies[f], &sin, &cos);
        sin *= x.amplitude, cos *= x.amplitude;
        int i = x.interleaved ? 2 * f : f, j = x.interleaved ? 2 * f + 1 : f + x.half;
        float p = key[i], q = key[j];
        key[i] = p * cos - q * sin;
        key[j] = p * sin + q * cos;
    }
    __syncwarp();
    float score = 0.0f;
    for (int head = 0; head < x.heads; head++) {
        const float *q = x.q + ((i64)row * x.heads + head) * x.dim;
        float dot = 0.0f;
        for (int d = lane; d < x.dim; d += 32) dot = fmaf(q[d], key[d], dot);
        score += fmaxf(lane_sum(dot), 0.0f);
    }
    // No minus zero: equal scores are told apart by their blocks alone.
    if (lane == 0) x.keys[(i64)row * x.room + b] = total_order(score + 0.0f);
}

extern "C" __global__ void largest_key_F32(const Index x) { BEGIN largest_key<float>(x); }
extern "C" __global__ void largest_key_F16(const Index x) { BEGIN largest_key<u16>(x); }
extern "C" __global__ void mean_key_F32(const Index x) { BEGIN mean_key<float>(x); }
extern "C" __global__ void mean_key_F16(const Index x) { BEGIN mean_key<u16>(x); }

// A block of threads a (choice, row): the best blocks' numbers, then -1. `partial`: whether the row's own block counts.
extern "C" __global__ void choose(int *keys, const int *positions, float *to, int choices, int count, int room, int block, int partial) {
    BEGIN
    const int row = blockIdx.y, choice = blockIdx.x, position = positions[row];
    const int blocks = partial ? position / block + 1 : (position + 1) / block;
    int *own = keys + ((i64)row * choices + choice) * room;
    float *out = to + ((i64)row * choices + choice) * count;
    for (int rank = 0; rank < count; rank++) {
        if (rank >= blocks) {
            if (threadIdx.x == 0) out[rank] = -1.0f;
            continue;
        }
        int at = block_largest(own, blocks);
        __syncthreads();
        // A key that no float has.
        if (threadIdx.x == 0) own[at] = (int)0x80000000, out[rank] = (float)at;
        __syncthreads();
    }
}
