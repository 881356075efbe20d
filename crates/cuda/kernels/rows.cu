// Steps on single rows: norms, rotations, gates, scales, residual streams, routing, and moving values about.
#include "common.cuh"

// A thread an element of `count`.
#define EACH(i, count)                                                                                                 \
    BEGIN                                                                                                              \
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;                                                                \
    if (i >= (count)) return;

// A block a vector of `width`: to = x * rsqrt(mean(x^2) + eps) * weight. Vector v has the weights from
// v % weight_vectors * width on.
extern "C" __global__ void rms_norm(const float *x, const float *weight, float *to, int width, int weight_vectors, float eps) {
    BEGIN
    const float *own = x + (i64)blockIdx.x * width;
    float *out = to + (i64)blockIdx.x * width;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) squares = fmaf(own[i], own[i], squares);
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)width + eps);
    const float *w = weight ? weight + (i64)(blockIdx.x % weight_vectors) * width : 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = own[i] * scale * (w ? w[i] : 1.0f);
}

// Turns the first 2 * half channels of each head of `dim` by its row's position.
extern "C" __global__ void rope(float *x, const int *positions, const float *frequencies, int rows, int heads, int dim, int half,
                                int interleaved, float amplitude) {
    EACH(i, (i64)rows * heads * half)
    int f = i % half;
    i64 head = i / half;
    float sin, cos;
    sincosf((float)positions[head / heads] * frequencies[f], &sin, &cos);
    sin *= amplitude, cos *= amplitude;
    float *own = x + head * dim;
    int a = interleaved ? 2 * f : f, b = interleaved ? 2 * f + 1 : f + half;
    float p = own[a], q = own[b];
    own[a] = p * cos - q * sin;
    own[b] = p * sin + q * cos;
}

extern "C" __global__ void add(float *into, const float *x, i64 count) {
    EACH(i, count)
    into[i] += x[i];
}

extern "C" __global__ void gated_act(const float *gate, const float *up, float *to, i64 count, int kind, float limit, float alpha) {
    EACH(i, count)
    to[i] = gated(kind, limit, alpha, gate[i], up[i]);
}

extern "C" __global__ void silu_of(float *x, i64 count) {
    EACH(i, count)
    x[i] = silu(x[i]);
}

extern "C" __global__ void mul_sigmoid(float *x, const float *gate, i64 count, int shared) {
    EACH(i, count)
    x[i] *= sigmoid(gate[i / shared]);
}

extern "C" __global__ void scale(float *x, i64 count, float factor) {
    EACH(i, count)
    x[i] *= factor;
}

extern "C" __global__ void scale_by(float *x, i64 count, const float *factor) {
    EACH(i, count)
    x[i] *= factor[0];
}

extern "C" __global__ void softcap(float *x, i64 count, float cap) {
    EACH(i, count)
    x[i] = cap * tanhf(x[i] / cap);
}

// Head by head, a then b.
extern "C" __global__ void head_concat(const float *a, const float *b, float *to, i64 heads, int a_dim, int b_dim) {
    const int dim = a_dim + b_dim;
    EACH(i, heads * dim)
    i64 head = i / dim;
    int c = i % dim;
    to[i] = c < a_dim ? a[head * a_dim + c] : b[head * b_dim + c - a_dim];
}

// to[r, c] = x[rows ? rows[r] : r, (first + c) % width].
extern "C" __global__ void take(const float *x, const int *rows, float *to, i64 count, int width, int to_width, int first) {
    EACH(i, count)
    i64 row = i / to_width;
    if (rows) row = rows[row];
    to[i] = x[row * width + (first + (int)(i % to_width)) % width];
}

extern "C" __global__ void hyper_mix(const float *x, const float *gate, float *to, i64 count, int width, int streams) {
    EACH(i, count)
    i64 at = i / width * width * streams + i % width;
    float sum = 0.0f;
    for (int c = 0; c < streams; c++) sum += sigmoid(gate[at + (i64)c * width]) * x[at + (i64)c * width];
    to[i] = sum / (float)streams;
}

extern "C" __global__ void hyper_add(float *into, const float *x, const float *inject, i64 count, int width, int streams) {
    EACH(i, count)
    i64 stream = i / width;
    float strength = 2.0f * sigmoid(inject[stream] / (float)streams);
    into[i] += strength * x[stream / streams * width + i % width];
}

// A block a stream of a row.
extern "C" __global__ void ngram_gate(const float *key, const float *query, const float *value, float *to, int width, int streams) {
    BEGIN
    i64 at = (i64)blockIdx.x * width;
    float dot = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) dot = fmaf(key[at + i], query[at + i], dot);
    float z = block_sum(dot) / sqrtf((float)width);
    float root = sqrtf(fmaxf(fabsf(z), 1e-6f));
    float gate = sigmoid(z == 0.0f ? 0.0f : z < 0.0f ? -root : root);
    const float *own = value + (i64)(blockIdx.x / streams) * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[at + i] = gate * own[i];
}

// A block a vector: mode 0 add, 1 ablate, 2 clamp, 3 renorm; see plan::Edit.
extern "C" __global__ void steer(float *x, const float *direction, int width, int mode, float strength, float target, float threshold) {
    BEGIN
    float *own = x + (i64)blockIdx.x * width;
    float along = 0.0f, row = 0.0f, length = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        along = fmaf(own[i], direction[i], along);
        row = fmaf(own[i], own[i], row);
        length = fmaf(direction[i], direction[i], length);
    }
    along = block_sum(along), row = block_sum(row);
    float square = block_sum(length);
    length = sqrtf(square);
    float component = along / length;
    if (fabsf(component) < threshold) return;
    float factor = strength, scale = 1.0f;
    if (mode == 1 || mode == 3) factor = -strength * along / square;
    if (mode == 2) factor = strength * (target - component) / length;
    if (mode == 3) {
        float left = row - strength * (2.0f - strength) * component * component;
        if (left > 1.1920929e-7f * row) scale = sqrtf(row / left);
    }
    for (int i = threadIdx.x; i < width; i += blockDim.x) own[i] = scale * (own[i] + factor * direction[i]);
}

// A block a row: from router logits to the chosen experts' numbers and weights. score: 0 softmax, 1 sigmoid, 2 softmax of the
// chosen. Shared memory: 2 * experts + groups + top_k words.
extern "C" __global__ void route(const float *logits, const float *choice_bias, const float *expert_scale, float *to, int experts,
                                 int top_k, int score, int groups, int groups_chosen, int renormalise, float factor) {
    BEGIN
    extern __shared__ int shared[];
    float *scores = (float *)shared;
    int *merit = shared + experts, *group_key = merit + experts;
    float *weights = (float *)(group_key + groups);
    const float *z = logits + (i64)blockIdx.x * experts;
    float *out = to + (i64)blockIdx.x * 2 * top_k;
    if (score == 0) {
        float most = NEGATIVE_INFINITY, sum = 0.0f;
        for (int e = threadIdx.x; e < experts; e += blockDim.x) most = fmaxf(most, z[e]);
        most = block_max(most);
        for (int e = threadIdx.x; e < experts; e += blockDim.x) sum += expf(z[e] - most);
        sum = block_sum(sum);
        for (int e = threadIdx.x; e < experts; e += blockDim.x) scores[e] = expf(z[e] - most) / sum;
    } else {
        for (int e = threadIdx.x; e < experts; e += blockDim.x) scores[e] = score == 1 ? sigmoid(z[e]) : z[e];
    }
    for (int e = threadIdx.x; e < experts; e += blockDim.x)
        merit[e] = total_order(scores[e] + (choice_bias ? choice_bias[e] : 0.0f));
    __syncthreads();
    if (groups) {
        const int size = experts / groups;
        for (int g = threadIdx.x; g < groups; g += blockDim.x) {
            int best = merit[g * size];
            for (int e = 1; e < size; e++) best = max(best, merit[g * size + e]);
            group_key[g] = best;
        }
        __syncthreads();
        for (int i = 0; i < groups_chosen; i++) {
            int g = block_largest(group_key, groups);
            __syncthreads();
            // The smallest key that no float has marks what is taken.
            if (threadIdx.x == 0) group_key[g] = (int)0x80000000;
            __syncthreads();
        }
        for (int e = threadIdx.x; e < experts; e += blockDim.x)
            if (group_key[e / size] != (int)0x80000000) merit[e] = total_order(NEGATIVE_INFINITY);
        __syncthreads();
    }
    for (int rank = 0; rank < top_k; rank++) {
        int e = block_largest(merit, experts);
        __syncthreads();
        if (threadIdx.x == 0) merit[e] = (int)0x80000000, out[rank] = (float)e, weights[rank] = scores[e];
        __syncthreads();
    }
    if (threadIdx.x) return;
    if (score == 2) {
        float most = NEGATIVE_INFINITY, sum = 0.0f;
        for (int i = 0; i < top_k; i++) most = fmaxf(most, weights[i]);
        for (int i = 0; i < top_k; i++) weights[i] = expf(weights[i] - most), sum += weights[i];
        for (int i = 0; i < top_k; i++) weights[i] /= sum;
    }
    float sum = 1.0f;
    if (renormalise) {
        sum = 0.0f;
        for (int i = 0; i < top_k; i++) sum += weights[i];
    }
    for (int i = 0; i < top_k; i++)
        out[top_k + i] = weights[i] / sum * factor * (expert_scale ? expert_scale[(int)out[i]] : 1.0f);
}

// to = the experts' outputs times their weights, added by rank.
extern "C" __global__ void combine(const float *outputs, const float *route, float *to, i64 count, int width, int top_k) {
    EACH(i, count)
    i64 row = i / width;
    float sum = 0.0f;
    for (int rank = 0; rank < top_k; rank++)
        sum += route[row * 2 * top_k + top_k + rank] * outputs[(row * top_k + rank) * width + i % width];
    to[i] = sum;
}
