// Steps whose rows depend on earlier ones of their sequence through a state of fixed size.
//
// Sequence s has the rows first[s] .. first[s + 1] and the copy slots[s] of the state.
#include "common.cuh"

// A thread an element of x: to = silu(sum over taps of weight * the row that many before).
extern "C" __global__ void conv(const float *x, const float *weight, const float *state, float *to, const int *first, const int *sequences,
                                const int *slots, int rows, int channels, int kernel, int dilation) {
    BEGIN
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (i64)rows * channels) return;
    const int row = i / channels, c = i % channels, before = (kernel - 1) * dilation, s = sequences[row];
    const float *history = state + (i64)slots[s] * before * channels, *own = x + (i64)first[s] * channels;
    float sum = 0.0f;
    for (int j = 0; j < kernel; j++) {
        // Counted from the first of the earlier rows.
        int at = before + row - first[s] - (kernel - 1 - j) * dilation;
        float value = at < before ? history[(i64)at * channels + c] : own[(i64)(at - before) * channels + c];
        sum = fmaf(weight[j * channels + c], value, sum);
    }
    to[i] = silu(sum);
}

// A thread a channel; blockIdx.y is the sequence: the last rows become the state.
extern "C" __global__ void conv_move(const float *x, float *state, const int *first, const int *slots, int channels, int before) {
    BEGIN
    const int c = blockIdx.x * blockDim.x + threadIdx.x, s = blockIdx.y;
    if (c >= channels) return;
    const int rows = first[s + 1] - first[s];
    float *history = state + (i64)slots[s] * before * channels;
    for (int i = 0; i < before; i++) {
        int at = i + rows;
        history[(i64)i * channels + c] = at < before ? history[(i64)at * channels + c] : x[(i64)(first[s] + at - before) * channels + c];
    }
}

struct Delta {
    const float *qkv, *beta, *decay, *a, *dt_bias;
    float *state, *to;
    const int *first, *slots;
    int k_heads, v_heads, k_dim, v_dim, tiled;
};

// A block of 128 threads: 128 columns of a value head's state, all rows of a sequence. Grid: (v heads, column blocks, sequences).
// Shared memory: 2 * k_dim floats.
extern "C" __global__ void __launch_bounds__(128) delta(const Delta d) {
    BEGIN
    extern __shared__ float shared[];
    float *q = shared, *k = shared + d.k_dim;
    const int head = blockIdx.x, c = blockIdx.y * 128 + threadIdx.x, s = blockIdx.z;
    const int key_head = d.tiled ? head % d.k_heads : head / (d.v_heads / d.k_heads);
    const int keys = d.k_heads * d.k_dim, width = 2 * keys + d.v_heads * d.v_dim;
    float *state = d.state + ((i64)d.slots[s] * d.v_heads + head) * d.k_dim * d.v_dim + c;
    for (int row = d.first[s]; row < d.first[s + 1]; row++) {
        const float *own = d.qkv + (i64)row * width;
        float q_square = 0.0f, k_square = 0.0f;
        for (int i = threadIdx.x; i < d.k_dim; i += 128) {
            float a = own[key_head * d.k_dim + i], b = own[keys + key_head * d.k_dim + i];
            q_square = fmaf(a, a, q_square), k_square = fmaf(b, b, k_square);
        }
        // The sums also wait for the row before.
        float q_scale = (1.0f / sqrtf((float)d.k_dim)) / sqrtf(block_sum(q_square) + 1e-6f);
        float k_scale = 1.0f / sqrtf(block_sum(k_square) + 1e-6f);
        for (int i = threadIdx.x; i < d.k_dim; i += 128) {
            q[i] = own[key_head * d.k_dim + i] * q_scale;
            k[i] = own[keys + key_head * d.k_dim + i] * k_scale;
        }
        __syncthreads();
        if (c >= d.v_dim) continue;
        const float gate = d.decay[(i64)row * d.v_heads + head] + d.dt_bias[head];
        const float softplus = gate > 20.0f ? gate : log1pf(expf(gate));
        const float keep = expf(d.a[head] * softplus), strength = sigmoid(d.beta[(i64)row * d.v_heads + head]);
        float remembered = 0.0f, out = 0.0f;
#pragma unroll 8
        for (int i = 0; i < d.k_dim; i++) remembered = fmaf(state[(i64)i * d.v_dim] * keep, k[i], remembered);
        const float change = (own[2 * keys + head * d.v_dim + c] - remembered) * strength;
#pragma unroll 8
        for (int i = 0; i < d.k_dim; i++) {
            float next = fmaf(k[i], change, state[(i64)i * d.v_dim] * keep);
            state[(i64)i * d.v_dim] = next;
            out = fmaf(next, q[i], out);
        }
        d.to[((i64)row * d.v_heads + head) * d.v_dim + c] = out;
    }
}

// A thread a sequence: the table rows that each token and those before it name. `hash` is multipliers, sizes, offsets.
extern "C" __global__ void ngram_rows(const int *tokens, const i64 *hash, float *state, int *ids, const int *first, const int *slots,
                                      int sequences, int count, int heads, int end) {
    BEGIN
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= sequences) return;
    const i64 *multipliers = hash, *sizes = hash + count + 1, *offsets = sizes + heads;
    float *earlier = state + (i64)slots[s] * count;
    for (int row = first[s]; row < first[s + 1]; row++) {
        for (int head = 0; head < heads; head++) {
            const int tokens_of = 2 + head / (heads / count);
            i64 mix = 0;
            int last = tokens[row];
            for (int i = 0; i < tokens_of && i <= count; i++) {
                if (i > 0) {
                    // An end token hides itself and everything before it from the tokens after it.
                    float id = earlier[count - i];
                    bool hidden = id == 0.0f || (i > 1 && last == end) || (int)id - 1 == end;
                    last = hidden ? end : (int)id - 1;
                }
                mix ^= (i64)last * multipliers[i];
            }
            i64 rest = mix % sizes[head];
            ids[(i64)row * heads + head] = (int)((rest < 0 ? rest + sizes[head] : rest) + offsets[head]);
        }
        for (int i = 0; i + 1 < count; i++) earlier[i] = earlier[i + 1];
        if (count > 0) earlier[count - 1] = (float)(tokens[row] + 1);
    }
}
