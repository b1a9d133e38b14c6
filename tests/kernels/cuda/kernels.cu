// Compute kernels of the test suite. `cargo run -p gpuvmk-kernels --features generate -- --nvcc NVCC` compiles them
// for Hopper and writes sass/.
//
// Copyright: the gpuvmk authors, Apache-2.0, like everything here.

// sum[i] = a[i] + b[i]
extern "C" __global__ void vector_add(const float *a, const float *b, float *sum, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] = a[i] + b[i];
}

// c = a * b, square matrices of n by n, n a multiple of 16, blocks of 16 by 16 threads: shared memory and barriers.
extern "C" __global__ void matrix_product(const float *a, const float *b, float *c, unsigned n)
{
    __shared__ float tile_a[16][16], tile_b[16][16];
    unsigned row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (unsigned tile = 0; tile < n; tile += 16) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
        __syncthreads();
        for (unsigned k = 0; k < 16; k++)
            sum = fmaf(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// *total += the sum of all values: atomics in shared and in global memory.
extern "C" __global__ void reduce_sum(const unsigned *values, unsigned long long *total, unsigned count)
{
    __shared__ unsigned long long part;
    if (threadIdx.x == 0)
        part = 0;
    __syncthreads();
    unsigned long long own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        own += values[i];
    atomicAdd(&part, own);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(total, part);
}

// Keeps the shader cores busy: each thread steps a linear congruential generator `rounds` times.
extern "C" __global__ void spin(unsigned *out, unsigned rounds, unsigned seed)
{
    unsigned x = seed + blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (unsigned i = 0; i < rounds; i++)
        x = x * 1664525u + 1013904223u;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Shared memory of a block that is nearly all a block may have without asking for more.
#define SHARED_WORDS 11520u

// Leaves a pattern in shared memory. out[block] is a word of it, so that nothing of this is left out.
extern "C" __global__ void shared_fill(unsigned *out, unsigned seed)
{
    __shared__ unsigned memory[SHARED_WORDS];
    volatile unsigned *words = memory;
    for (unsigned i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x)
        words[i] = seed ^ i * 2654435761u;
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = words[blockIdx.x % SHARED_WORDS];
}

// Looks at shared memory that it has not written. found[0] counts words of the pattern in their places, found[1] words that are
// not 0.
extern "C" __global__ void shared_look(unsigned *found, unsigned seed)
{
    __shared__ unsigned memory[SHARED_WORDS];
    volatile unsigned *words = memory;
    unsigned same = 0, set = 0;
    for (unsigned i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) {
        unsigned word = words[i];
        same += word == (seed ^ i * 2654435761u);
        set += word != 0;
    }
    if (same != 0)
        atomicAdd(&found[0], same);
    if (set != 0)
        atomicAdd(&found[1], set);
}
