// Products with matrices of every storage type, and lookups in them.
//
// A warp computes OUTPUTS outputs for ROWS rows: each lane takes every 32nd group of eight weights, sums in the order of the
// groups, and the lanes are added pairwise. The order depends on the matrix alone, so a row has the same bits in any batch.
#include "common.cuh"

// What a product is of. `x` holds rows of `x_stride`; output o of row r goes to out[r * out_stride + o].
struct Product {
    const u8 *w;          // [outputs, inputs], `row_bytes` a row
    const float *bias;    // [outputs], or null
    const float *x;
    float *out;
    const float *route;   // Experts: numbers, then weights, of each row of the model; else null
    i64 row_bytes;
    int inputs, outputs, rows;
    int x_stride, out_stride;
    int head_outputs;     // outputs that share `inputs` neighbouring channels of x; 0: all
    int top_k;            // experts a row of the model has
    int shared_x;         // experts of one row read the same x
    int add;              // whether the result joins what is there
};

// Where row `r` reads, and what of the matrix it meets.
__device__ __forceinline__ void place(const Product &p, int r, const float *&x, const u8 *&w, const float *&bias) {
    x = p.x, w = p.w, bias = p.bias;
    if (p.route) {
        int row = r / p.top_k;
        i64 expert = (i64)p.route[row * 2 * p.top_k + r % p.top_k];
        w += expert * p.outputs * p.row_bytes;
        if (bias) bias += expert * p.outputs;
        x += (i64)(p.shared_x ? row : r) * p.x_stride;
    } else {
        x += (i64)r * p.x_stride;
    }
}

__device__ __forceinline__ void finish(const Product &p, int r, int o, float dot, const float *bias) {
    if (bias) dot += bias[o];
    float *out = p.out + (i64)r * p.out_stride + o;
    *out = p.add ? *out + dot : dot;
}

// A lane's part of the products of OUTPUTS rows of a matrix with ROWS rows of x.
template <int T, int ROWS, int OUTPUTS>
__device__ __forceinline__ void sums(const u8 *const *row, const float *const *x, int chunks, int lane, float (*sum)[ROWS]) {
    // Loads in flight are what a single row is short of: several groups are asked for before the first is used. Past the end the
    // last group meets zeros.
    constexpr int AHEAD = ROWS == 1 ? 4 : 1;
    for (int base = lane; base < chunks; base += 32 * AHEAD) {
        float weight[AHEAD][OUTPUTS][8];
        int at[AHEAD][2];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int o = 0; o < OUTPUTS; o++) weights8<T>(row[o], min(base + 32 * i, chunks - 1), weight[i][o], at[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const bool there = base + 32 * i < chunks;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float4 a = *(const float4 *)(x[r] + at[i][0]), b = *(const float4 *)(x[r] + at[i][1]);
                if (!there) a = b = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                for (int o = 0; o < OUTPUTS; o++) {
                    const float *v = weight[i][o];
                    float s = sum[o][r];
                    s = fmaf(v[0], a.x, s), s = fmaf(v[1], a.y, s), s = fmaf(v[2], a.z, s), s = fmaf(v[3], a.w, s);
                    s = fmaf(v[4], b.x, s), s = fmaf(v[5], b.y, s), s = fmaf(v[6], b.z, s), s = fmaf(v[7], b.w, s);
                    sum[o][r] = s;
                }
            }
        }
    }
}

template <int T, int ROWS, int OUTPUTS> __device__ __forceinline__ void product(const Product &p) {
    const int lane = threadIdx.x % 32;
    const int o0 = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * OUTPUTS, r0 = blockIdx.y * ROWS;
    LET_NEXT_BEGIN
    if (o0 >= p.outputs) return;
    if (!p.route && blockIdx.y == 0)
        for (int o = 0; o < OUTPUTS; o++) fetch(p.w + (i64)min(o0 + o, p.outputs - 1) * p.row_bytes, p.row_bytes, lane);
    WAIT_FOR_EARLIER
    const float *x[ROWS], *bias;
    const u8 *w;
    for (int r = ROWS - 1; r >= 0; r--) place(p, min(r0 + r, p.rows - 1), x[r], w, bias);
    if (p.head_outputs)
        for (int r = 0; r < ROWS; r++) x[r] += o0 / p.head_outputs * p.inputs;
    const u8 *row[OUTPUTS];
    for (int o = 0; o < OUTPUTS; o++) row[o] = w + (i64)min(o0 + o, p.outputs - 1) * p.row_bytes;
    float sum[OUTPUTS][ROWS];
    for (int o = 0; o < OUTPUTS; o++)
        for (int r = 0; r < ROWS; r++) sum[o][r] = 0.0f;
    sums<T, ROWS, OUTPUTS>(row, x, p.inputs / 8, lane, sum);
#pragma unroll
    for (int o = 0; o < OUTPUTS; o++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float dot = lane_sum(sum[o][r]);
            if (lane == 0 && o0 + o < p.outputs && r0 + r < p.rows) finish(p, r0 + r, o0 + o, dot, bias);
        }
}

// Plain floats in rows that are no whole number of aligned groups of eight.
template <int T> __device__ __forceinline__ void product_of_any_width(const Product &p) {
    const int lane = threadIdx.x % 32, o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, r = blockIdx.y;
    BEGIN
    if (o >= p.outputs) return;
    const float *x, *bias;
    const u8 *w;
    place(p, r, x, w, bias);
    if (p.head_outputs) x += o / p.head_outputs * p.inputs;
    const u8 *row = w + (i64)o * p.row_bytes;
    float sum = 0.0f;
    for (int i = lane; i < p.inputs; i += 32) sum = fmaf(element<T>(row, i), x[i], sum);
    sum = lane_sum(sum);
    if (lane == 0) finish(p, r, o, sum, bias);
}

// Several products of one row.
#define PARTS 4
struct Products {
    const u8 *w[PARTS];
    const float *bias[PARTS];
    float *out[PARTS];
    const float *x;
    i64 row_bytes;
    int outputs[PARTS];
    int inputs, parts;
};

// Grid: as many blocks as the parts need, one part after the other.
template <int T, int OUTPUTS> __device__ __forceinline__ void products(const Products &p) {
    LET_NEXT_BEGIN
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    int block = blockIdx.x, part = 0;
    for (; part + 1 < p.parts; part++) {
        int own = (p.outputs[part] + warps * OUTPUTS - 1) / (warps * OUTPUTS);
        if (block < own) break;
        block -= own;
    }
    const int o0 = (block * warps + threadIdx.x / 32) * OUTPUTS, outputs = p.outputs[part];
    if (o0 >= outputs) return;
    const u8 *row[OUTPUTS];
    float sum[OUTPUTS][1];
    for (int o = 0; o < OUTPUTS; o++) row[o] = p.w[part] + (i64)min(o0 + o, outputs - 1) * p.row_bytes, sum[o][0] = 0.0f;
    for (int o = 0; o < OUTPUTS; o++) fetch(row[o], p.row_bytes, lane);
    WAIT_FOR_EARLIER
    sums<T, 1, OUTPUTS>(row, &p.x, p.inputs / 8, lane, sum);
#pragma unroll
    for (int o = 0; o < OUTPUTS; o++) {
        float dot = lane_sum(sum[o][0]);
        if (lane == 0 && o0 + o < outputs) p.out[part][o0 + o] = p.bias[part] ? dot + p.bias[part][o0 + o] : dot;
    }
}

// Gate and up of one row, joined: part 0 is the gate, part 1 is up.
struct Gate {
    Products p;
    float limit, alpha;
    int kind;
};

template <int T> __device__ __forceinline__ void gate_up(const Gate &g) {
    LET_NEXT_BEGIN
    const Products &p = g.p;
    const int lane = threadIdx.x % 32, o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (o >= p.outputs[0]) return;
    const u8 *row[2] = {p.w[0] + o * p.row_bytes, p.w[1] + o * p.row_bytes};
    float sum[2][1] = {{0.0f}, {0.0f}};
    for (int o = 0; o < 2; o++) fetch(row[o], p.row_bytes, lane);
    WAIT_FOR_EARLIER
    sums<T, 1, 2>(row, &p.x, p.inputs / 8, lane, sum);
    float a = lane_sum(sum[0][0]), b = lane_sum(sum[1][0]);
    if (lane) return;
    if (p.bias[0]) a += p.bias[0][o];
    if (p.bias[1]) b += p.bias[1][o];
    p.out[0][o] = gated(g.kind, g.limit, g.alpha, a, b);
}

// `to[r] = scale * table[ids[r]]`.
struct Lookup {
    const u8 *table;
    const int *ids;
    float *to;
    i64 row_bytes;
    int width, rows;
    float scale;
};

template <int T> __device__ __forceinline__ void lookup(const Lookup &l) {
    int chunk = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (chunk >= l.width / 8) return;
    float w[8];
    int at[2];
    weights8<T>(l.table + l.ids[r] * l.row_bytes, chunk, w, at);
    float *to = l.to + (i64)r * l.width;
    for (int i = 0; i < 8; i++) to[at[i / 4] + i % 4] = l.scale * w[i];
}

template <int T> __device__ __forceinline__ void lookup_of_any_width(const Lookup &l) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (i < l.width) l.to[(i64)r * l.width + i] = l.scale * element<T>(l.table + l.ids[r] * l.row_bytes, i);
}

#define KERNELS(T)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(128) linear_##T##_1(const Product p) { product<T, 1, 2>(p); }         \
    extern "C" __global__ void __launch_bounds__(128) linear_##T##_4(const Product p) { product<T, 4, 2>(p); }         \
    extern "C" __global__ void __launch_bounds__(128) linear_##T##_16(const Product p) { product<T, 16, 2>(p); }       \
    extern "C" __global__ void __launch_bounds__(128) lookup_##T(const Lookup l) { BEGIN lookup<T>(l); }

#define FLOATS(T)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(128) linear_any_##T(const Product p) { product_of_any_width<T>(p); }  \
    extern "C" __global__ void __launch_bounds__(128) lookup_any_##T(const Lookup l) { BEGIN lookup_of_any_width<T>(l); }

// Fused forms, for the types that most models are in.
#define FUSED(T)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(128) linears_##T(const Products p) { products<T, 2>(p); }             \
    extern "C" __global__ void __launch_bounds__(128) gate_up_##T(const Gate g) { gate_up<T>(g); }

FUSED(F16)
FUSED(BF16)
FUSED(Q4_0)
FUSED(Q8_0)
FUSED(Q4_K)
FUSED(Q6_K)
KERNELS(F32)
KERNELS(F16)
KERNELS(BF16)
KERNELS(Q4_0)
KERNELS(Q4_1)
KERNELS(Q5_0)
KERNELS(Q5_1)
KERNELS(Q8_0)
KERNELS(Q2_K)
KERNELS(Q3_K)
KERNELS(Q4_K)
KERNELS(Q5_K)
KERNELS(Q6_K)
KERNELS(IQ4_NL)
KERNELS(IQ4_XS)
KERNELS(IQ3_S)
KERNELS(MXFP4)
FLOATS(F32)
FLOATS(F16)
FLOATS(BF16)
