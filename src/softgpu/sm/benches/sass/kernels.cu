// Kernels of the benchmark of shaders.

// A loop of integers and floats, as many of each.
extern "C" __global__ void mixed(unsigned *out, unsigned rounds, unsigned seed)
{
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = index + seed, y = index ^ seed;
    float f = index * 0.001f, g = seed * 0.01f;
#pragma unroll 4
    for (unsigned i = 0; i < rounds; i++) {
        x = x * 1664525u + 1013904223u;
        f = f * 0.99f + g;
        y = (y + x) ^ (x >> 7);
        g = g * f + 0.25f;
    }
    out[index] = x ^ y ^ __float_as_uint(f) ^ __float_as_uint(g);
}

// c = a * b of size * size; 256 threads have 64 * 64 elements, each of them 4 * 4, by way of shared memory.
extern "C" __global__ void product(const float *a, const float *b, float *c, unsigned size)
{
    __shared__ float as[16][64], bs[16][64];
    unsigned x = threadIdx.x % 16, y = threadIdx.x / 16;
    unsigned row = blockIdx.y * 64, column = blockIdx.x * 64;
    unsigned end = size + threadIdx.z;
    float sums[4][4] = {};
    for (unsigned k = 0; k < end; k += 16) {
        for (unsigned i = 0; i < 4; i++) {
            as[x][y + 16 * i] = a[(row + y + 16 * i) * size + k + x];
            bs[y][x + 16 * i] = b[(k + y) * size + column + x + 16 * i];
        }
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < 16; i++) {
            float4 p = *(const float4 *)&as[i][4 * y], q = *(const float4 *)&bs[i][4 * x];
            float left[4] = {p.x, p.y, p.z, p.w}, right[4] = {q.x, q.y, q.z, q.w};
            for (unsigned m = 0; m < 4; m++)
                for (unsigned n = 0; n < 4; n++)
                    sums[m][n] += left[m] * right[n];
        }
        __syncthreads();
    }
    for (unsigned m = 0; m < 4; m++)
        *(float4 *)&c[(row + 4 * y + m) * size + column + 4 * x] =
            make_float4(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
}

// Nothing.
extern "C" __global__ void empty() {}
