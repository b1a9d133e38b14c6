// Kernels whose results on a GPU are recorded: each one reads `in` (65536 words) and writes `out` (65536
// words). 4 blocks of 128 threads. Results do not depend on the order of threads.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>
#include <mma.h>

typedef uint32_t u32;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void name(u32 *out, const u32 *in, u32 n)
#define ID (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)

__device__ float single(u32 word) { return (float)(int)word * 1e-7f; }
__device__ double wide(u32 word) { return (double)(int)word * 1e-7; }

KERNEL(k_add) { for (u32 i = ID; i < n; i += ALL) out[i] = in[i] + in[n - 1 - i]; }

KERNEL(k_saxpy) {
    for (u32 i = ID; i < n; i += ALL) out[i] = __float_as_uint(2.5f * single(in[i]) + single(in[i ^ 1]));
}

KERNEL(k_matmul) {
    __shared__ float a[16][17], b[16][17];
    u32 x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (u32 tile = blockIdx.x; tile < 16; tile += gridDim.x) {
        u32 row = tile / 4 * 16, column = tile % 4 * 16;
        float sums[2] = {0, 0};
        for (u32 k = 0; k < 64; k += 16) {
            for (u32 h = 0; h < 2; h++) {
                a[y + 8 * h][x] = single(in[(row + y + 8 * h) * 64 + k + x]);
                b[y + 8 * h][x] = single(in[4096 + (k + y + 8 * h) * 64 + column + x]);
            }
            __syncthreads();
            for (u32 q = 0; q < 16; q++)
                for (u32 h = 0; h < 2; h++) sums[h] += a[y + 8 * h][q] * b[q][x];
            __syncthreads();
        }
        for (u32 h = 0; h < 2; h++) out[(row + y + 8 * h) * 64 + column + x] = __float_as_uint(sums[h]);
    }
}

KERNEL(k_matmul_half) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) __half a[256], b[256];
    __shared__ __align__(32) float c[256];
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) {
        a[i] = __float2half(single(in[i + 256 * blockIdx.x]) * .01f);
        b[i] = __float2half(single(in[i + 4096]) * .01f);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
        fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
        fragment<accumulator, 16, 16, 16, float> fc;
        fill_fragment(fc, 0.25f);
        load_matrix_sync(fa, a, 16);
        load_matrix_sync(fb, b, 16);
        for (int i = 0; i < 3; i++) mma_sync(fc, fa, fb, fc);
        store_matrix_sync(c, fc, 16, mem_row_major);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) out[i + 256 * blockIdx.x] = __float_as_uint(c[i]);
}

KERNEL(k_matmul_bytes) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) signed char a[256], b[256];
    __shared__ __align__(32) int c[256];
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) a[i] = in[i + blockIdx.x], b[i] = in[i + 999];
    __syncthreads();
    if (threadIdx.x < 32) {
        fragment<matrix_a, 16, 16, 16, signed char, row_major> fa;
        fragment<matrix_b, 16, 16, 16, signed char, col_major> fb;
        fragment<accumulator, 16, 16, 16, int> fc;
        fill_fragment(fc, 7);
        load_matrix_sync(fa, a, 16);
        load_matrix_sync(fb, b, 16);
        mma_sync(fc, fa, fb, fc);
        store_matrix_sync(c, fc, 16, mem_row_major);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) out[i + 256 * blockIdx.x] = c[i];
}

KERNEL(k_async_copy) {
    __shared__ __align__(16) u32 tile[512];
    for (u32 base = blockIdx.x * 512; base < n; base += gridDim.x * 512) {
        u32 to = __cvta_generic_to_shared(tile + threadIdx.x * 4);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + base + threadIdx.x * 4));
        asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        for (u32 i = threadIdx.x; i < 512; i += blockDim.x) out[base + i] = tile[511 - i] * 3;
        __syncthreads();
    }
}

KERNEL(k_transposed_fragments) {
    __shared__ __align__(16) u32 tile[128];
    tile[threadIdx.x] = in[threadIdx.x + blockIdx.x * 128];
    __syncthreads();
    u32 at = __cvta_generic_to_shared(tile + threadIdx.x % 32 * 4), a, b, c, d, e, f, g;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(e), "=r"(f) : "r"(at));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(g) : "r"(a));
    u32 *to = out + ID * 8;
    to[0] = a, to[1] = b, to[2] = c, to[3] = d, to[4] = e, to[5] = f, to[6] = g, to[7] = threadIdx.x;
}

KERNEL(k_reduce) {
    __shared__ u32 parts[4];
    u32 sum = 0;
    for (u32 i = ID; i < n; i += ALL) sum += in[i];
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, parts[0] + parts[1] + parts[2] + parts[3]);
}

KERNEL(k_reduce_float) {
    __shared__ float parts[128];
    float sum = 0;
    for (u32 i = ID; i < n; i += ALL) sum += single(in[i]);
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (u32 d = 64; d; d >>= 1) {
        if (threadIdx.x < d) parts[threadIdx.x] += parts[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = __float_as_uint(parts[0]);
}

KERNEL(k_scan) {
    u32 lane = threadIdx.x % 32, carry = 0;
    for (u32 base = ID - lane; base < n; base += ALL) {
        u32 value = in[base + lane] & 0xffff;
        for (u32 d = 1; d < 32; d *= 2) {
            u32 other = __shfl_up_sync(~0u, value, d);
            if (lane >= d) value += other;
        }
        out[base + lane] = value + carry;
        carry = __shfl_sync(~0u, value + carry, 31);
    }
}

KERNEL(k_histogram) {
    __shared__ u32 bins[256];
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (u32 i = ID; i < n; i += ALL) atomicAdd(bins + (in[i] & 255), 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(out + i, bins[i]);
}

KERNEL(k_atomics) {
    u32 v = in[ID];
    atomicAdd(out, v), atomicMin(out + 1, v), atomicMax(out + 2, v), atomicAnd(out + 3, v | 0xff), atomicOr(out + 4, v);
    atomicXor(out + 5, v), atomicInc(out + 6, 100), atomicDec(out + 7, 77), atomicMin((int *)out + 8, (int)v);
    atomicMax((int *)out + 9, (int)v), atomicAdd((u64 *)(out + 10), (u64)v << 20), atomicMax((u64 *)(out + 12), (u64)v << 7);
    for (u32 old = out[14], seen; (seen = atomicCAS(out + 14, old, old * 3 + 1)) != old; old = seen) {}
    out[64 + ID] = v;
}

KERNEL(k_bitonic) {
    __shared__ u32 keys[256];
    for (u32 base = blockIdx.x * 256; base < n; base += gridDim.x * 256) {
        for (u32 i = threadIdx.x; i < 256; i += 128) keys[i] = in[base + i];
        __syncthreads();
        for (u32 size = 2; size <= 256; size *= 2)
            for (u32 stride = size / 2; stride; stride /= 2) {
                u32 i = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
                u32 a = keys[i], b = keys[i + stride];
                bool up = (i & size) == 0;
                if ((a > b) == up) keys[i] = b, keys[i + stride] = a;
                __syncthreads();
            }
        for (u32 i = threadIdx.x; i < 256; i += 128) out[base + i] = keys[i];
        __syncthreads();
    }
}

KERNEL(k_sines) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = single(in[i]);
        out[i] = __float_as_uint(sinf(x) + cosf(x * 3) + tanf(x * .1f));
    }
}
KERNEL(k_powers) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = fabsf(single(in[i])) + .001f;
        out[i] = __float_as_uint(expf(-x * .1f) + logf(x) + powf(x, .7f) + exp2f(x * .05f) + log2f(x) + cbrtf(x));
    }
}
KERNEL(k_roots) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = fabsf(single(in[i]));
        out[i] = __float_as_uint(sqrtf(x) + rsqrtf(x + 1) + 1 / (x + 2) + x / 3.7f + hypotf(x, 2) + fmodf(x, .7f));
    }
}
KERNEL(k_rounded) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = single(in[i]);
        float y = floorf(x) + ceilf(x * 2) + truncf(x * 3) + rintf(x * 5) + roundf(x * 7);
        out[i] = __float_as_uint(__fadd_rz(y, __fmul_ru(x, 1.1f))) ^ __float2int_rd(x) ^ __float2uint_ru(fabsf(x));
    }
}
KERNEL(k_erf) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = single(in[i]) * .01f;
        out[i] = __float_as_uint(erff(x) + tgammaf(fabsf(x) + 1) + lgammaf(fabsf(x) + .5f) + tanhf(x) + asinhf(x) + atanf(x));
    }
}
KERNEL(k_doubles) {
    for (u32 i = ID; i < n / 2; i += ALL) {
        double x = wide(in[i]);
        ((double *)out)[i] = sin(x) + exp(x * 1e-2) + sqrt(fabs(x)) + 1 / (x + .5) + pow(fabs(x), .3) + fma(x, x, 1.5);
    }
}
KERNEL(k_doubles_rounded) {
    for (u32 i = ID; i < n / 2; i += ALL) {
        double x = wide(in[i]), y = wide(in[i + n / 2]);
        double s = __dadd_rd(x, y) + __dmul_ru(x, y) + __fma_rz(x, y, 1.25) + fmin(x, y) - fmax(x * 2, y);
        ((double *)out)[i] = s + floor(x) + rint(y) + (double)(float)(x * y) + (double)(long long)(x * 1e6);
    }
}
KERNEL(k_halves) {
    for (u32 i = ID; i < n; i += ALL) {
        __half2 x = __float22half2_rn(make_float2(single(in[i]) * .01f, single(in[i ^ 5]) * .01f));
        __half2 y = __hfma2(x, x, __hadd2(x, __float2half2_rn(.3f)));
        y = __hmin2(__hmul2(y, x), __hmax2(x, y));
        y = __hadd2(y, h2exp2(__hmul2(x, __float2half2_rn(.1f))));
        out[i] = *(u32 *)&y + (__hbgt2(x, y) ? 1 : 0);
    }
}
KERNEL(k_brain) {
    for (u32 i = ID; i < n; i += ALL) {
        __nv_bfloat162 x = __float22bfloat162_rn(make_float2(single(in[i]), single(in[i ^ 3])));
        __nv_bfloat162 y = __hfma2(x, x, x);
        y = __hmax2(y, __hadd2(x, x));
        out[i] = *(u32 *)&y;
    }
}
KERNEL(k_conversions) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = single(in[i]) * 1000;
        u64 a = (u64)(long long)x + (u64)(double)in[i] + (u32)(unsigned char)(int)x + (u32)(short)x;
        out[i] = a ^ (a >> 32) ^ __float_as_uint((float)(long long)(a * 77)) ^ __half_as_ushort(__float2half_rz(x));
    }
}
KERNEL(k_division) {
    for (u32 i = ID; i < n / 2; i += ALL) {
        u64 a = (u64)in[i] << 32 | in[i + 1], b = in[i + 7] % 100000 + 1;
        long long c = (long long)a / -(long long)(b * 977), d = (long long)a % (long long)(b | 1);
        ((u64 *)out)[i] = a / b + a % (b * b) + c + d + (int)in[i] / (int)(b | 3) + in[i] % (u32)b;
    }
}
KERNEL(k_products) {
    for (u32 i = ID; i < n / 2; i += ALL) {
        u64 a = (u64)in[i] << 32 | in[i + 1], b = (u64)in[i + 2] << 32 | in[i + 3];
        ((u64 *)out)[i] = __umul64hi(a, b) ^ (u64)__mul64hi((long long)a, (long long)b) ^ a * b ^ ((a << (b & 63)) | (a >> (64 - (b & 63))));
    }
}
KERNEL(k_bits) {
    for (u32 i = ID; i < n; i += ALL) {
        u32 a = in[i], b = in[i ^ 9];
        out[i] = __popc(a) + __clz(b) * 3 + __ffs(a) * 5 + __brev(a) + __byte_perm(a, b, a & 0x7777) + __funnelshift_l(a, b, b) +
                 __funnelshift_rc(a, b, b & 63) + __sad(a, b, 3) + __dp4a(a, b, b) + __dp2a_hi((int)a, (int)b, 1) + __vabsdiffu4(a, b) + __vmaxs2(a, b);
    }
}
KERNEL(k_crc) {
    for (u32 i = ID; i < n / 16; i += ALL) {
        u32 crc = ~0u;
        for (u32 k = 0; k < 16; k++) {
            crc ^= in[i * 16 + k];
            for (int bit = 0; bit < 32; bit++) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
        }
        out[i] = ~crc;
    }
}
__device__ u32 turned(u32 x, int by) { return x >> by | x << (32 - by); }
KERNEL(k_sha) {
    for (u32 i = ID; i < n / 16; i += ALL) {
        u32 w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
        for (int k = 0; k < 16; k++) w[k] = in[i * 16 + k];
        for (int k = 16; k < 64; k++) {
            u32 a = w[k - 15], b = w[k - 2];
            w[k] = w[k - 16] + w[k - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        for (int k = 0; k < 64; k++) {
            u32 t = h[7] + (turned(h[4], 6) ^ turned(h[4], 11) ^ turned(h[4], 25)) + (h[4] & h[5] ^ ~h[4] & h[6]) + 0x9e3779b9 * k + w[k];
            u32 s = (turned(h[0], 2) ^ turned(h[0], 13) ^ turned(h[0], 22)) + (h[0] & h[1] ^ h[0] & h[2] ^ h[1] & h[2]);
            for (int q = 7; q; q--) h[q] = h[q - 1];
            h[4] += t, h[0] = t + s;
        }
        for (int k = 0; k < 8; k++) out[i * 8 + k] = h[k];
    }
}
KERNEL(k_collatz) {
    for (u32 i = ID; i < n / 8; i += ALL) {
        u32 x = in[i] & 0xffff, steps = 0;
        while (x > 1 && steps < 300) x = x & 1 ? 3 * x + 1 : x / 2, steps++;
        out[i] = steps;
    }
}
KERNEL(k_mandelbrot) {
    for (u32 i = ID; i < n / 4; i += ALL) {
        float x = (i % 128) / 48.f - 2, y = (i / 128) / 64.f - 1, a = 0, b = 0;
        u32 k = 0;
        for (; k < 64 && a * a + b * b < 4; k++) {
            float t = a * a - b * b + x;
            b = 2 * a * b + y, a = t;
        }
        out[i] = k << 16 ^ __float_as_uint(a);
    }
}
__device__ __noinline__ u32 ackermann(u32 m, u32 k) {
    return m == 0 ? k + 1 : ackermann(m - 1, k == 0 ? 1 : ackermann(m, k - 1));
}
KERNEL(k_recursion) { out[ID] = ackermann(in[ID] % 3, in[ID + 1] % 5); }
__device__ __noinline__ u32 f_one(u32 x) { return x * 3; }
__device__ __noinline__ u32 f_two(u32 x) { return x ^ 0x5555; }
__device__ __noinline__ u32 f_three(u32 x) { return __popc(x); }
__device__ u32 (*const functions[3])(u32) = {f_one, f_two, f_three};
KERNEL(k_pointers) {
    for (u32 i = ID; i < n / 4; i += ALL) out[i] = functions[in[i] % 3](in[i]);
}
KERNEL(k_cases) {
    for (u32 i = ID; i < n; i += ALL) {
        u32 x = in[i];
        switch (x % 11) {
        case 0: x = in[x % n]; break;
        case 1: x *= 77; break;
        case 2: x /= 7; break;
        case 3: x = ~x; break;
        case 4: x = __brev(x); break;
        case 5: x <<= 5; // falls through
        case 6: x += 9; break;
        case 7: x = x % 13; break;
        case 8: x ^= in[(x >> 3) % n]; break;
        default: x = 0xdead;
        }
        out[i] = x;
    }
}
KERNEL(k_local) {
    u32 heap[64];
    for (u32 i = 0; i < 64; i++) heap[i] = in[ID * 64 + i];
    for (u32 end = 63; end; end--)
        for (u32 i = 0; i < end; i++)
            if (heap[i] > heap[i + 1]) {
                u32 t = heap[i];
                heap[i] = heap[i + 1], heap[i + 1] = t;
            }
    u32 sum = 0;
    for (u32 i = 0; i < 64; i++) sum = sum * 31 + heap[(i + in[i]) & 63];
    out[ID] = sum;
}
KERNEL(k_generic) {
    __shared__ u32 block[128];
    u32 own[8];
    for (int i = 0; i < 8; i++) own[i] = in[ID + i];
    block[threadIdx.x] = in[ID] * 5;
    __syncthreads();
    u32 kind = in[ID] % 3;
    u32 *p = kind == 0 ? out + 4096 + ID : kind == 1 ? block + threadIdx.x : own + (in[ID] & 7);
    *p += 11;
    out[ID] = *p + __isShared(p) * 100 + __isGlobal(p) * 1000 + __isLocal(p) * 10000;
}
KERNEL(k_votes) {
    u32 v = in[ID], lane = threadIdx.x % 32, r = __ballot_sync(~0u, v & 1);
    r += __any_sync(~0u, v % 100 == 5) + 2 * __all_sync(~0u, v != 7) + __shfl_xor_sync(~0u, v, lane & 7) + __shfl_sync(~0u, v, v & 31, 8);
    r ^= __match_any_sync(~0u, v % 5) + __reduce_add_sync(~0u, v) + __reduce_max_sync(~0u, (int)v) + __reduce_xor_sync(~0u, v);
    if (v & 2) r += __match_any_sync(__activemask(), v % 3);
    out[ID] = r;
}
KERNEL(k_barriers) {
    __shared__ u32 words[128];
    words[threadIdx.x] = in[ID];
    __syncthreads();
    u32 r = __syncthreads_count(words[127 - threadIdx.x] & 1) * 100 + __syncthreads_or(words[threadIdx.x] % 97 == 3) * 10 + __syncthreads_and(words[threadIdx.x] != 0);
    if (threadIdx.x < 64) {
        words[threadIdx.x] = r;
        asm volatile("bar.sync 1, 64;");
        r += words[63 - threadIdx.x];
    }
    out[ID] = r;
}
KERNEL(k_diverge) {
    u32 s = in[ID];
    for (u32 k = 0; k < 40; k++) {
        u32 v = in[(s + k) % n];
        if (v & 1) {
            if (v & 2) continue;
            s += v;
            if (s % 101 == 0) break;
        } else {
            for (u32 j = 0; j < (v & 7); j++) s = s * 5 + j;
        }
    }
    out[ID] = s;
}
KERNEL(k_life) {
    for (u32 i = ID; i < n; i += ALL) {
        u32 x = i % 256, y = i / 256, alive = 0;
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                if (dx || dy) alive += in[((y + dy) & 255) * 256 + ((x + dx) & 255)] & 1;
        out[i] = alive == 3 || (alive == 2 && in[i] & 1);
    }
}
KERNEL(k_fourier) {
    __shared__ float re[256], im[256];
    for (u32 i = threadIdx.x; i < 256; i += 128) {
        u32 j = __brev(i) >> 24;
        re[i] = single(in[blockIdx.x * 256 + j]), im[i] = 0;
    }
    __syncthreads();
    for (u32 half = 1; half < 256; half *= 2) {
        u32 k = threadIdx.x % half, i = (threadIdx.x / half) * 2 * half + k;
        float s, c;
        sincospif(-(float)k / half, &s, &c);
        float tr = c * re[i + half] - s * im[i + half], ti = c * im[i + half] + s * re[i + half];
        float ar = re[i], ai = im[i];
        re[i] = ar + tr, im[i] = ai + ti, re[i + half] = ar - tr, im[i + half] = ai - ti;
        __syncthreads();
    }
    for (u32 i = threadIdx.x; i < 256; i += 128) out[(blockIdx.x * 256 + i) * 2] = __float_as_uint(re[i]), out[(blockIdx.x * 256 + i) * 2 + 1] = __float_as_uint(im[i]);
}
KERNEL(k_bodies) {
    float px = single(in[ID]), py = single(in[ID + n / 2]), vx = 0, vy = 0;
    for (u32 k = 0; k < 64; k++) {
        float dx = single(in[k]) - px, dy = single(in[k + n / 2]) - py, d = rsqrtf(dx * dx + dy * dy + .1f);
        vx += dx * d * d * d, vy += dy * d * d * d;
    }
    out[2 * ID] = __float_as_uint(vx), out[2 * ID + 1] = __float_as_uint(vy);
}
KERNEL(k_fast_math) {
    for (u32 i = ID; i < n; i += ALL) {
        float x = single(in[i]);
        out[i] = __float_as_uint(__expf(-fabsf(x) * .1f) + __logf(fabsf(x) + 1) + __fdividef(x, 3.3f) + __powf(fabsf(x) + .1f, .4f) + __saturatef(x) + __frsqrt_rn(fabsf(x) + 1) + __fdiv_rz(x, 7));
    }
}
KERNEL(k_vectors) {
    const uint4 *from = (const uint4 *)in;
    uint4 *to = (uint4 *)out;
    for (u32 i = ID; i < n / 4; i += ALL) {
        uint4 v = from[i];
        uchar4 b = *(const uchar4 *)(in + i);
        short2 h = *(const short2 *)(in + n - 1 - i);
        to[i] = make_uint4(v.w + b.x, v.z + b.w, v.y + h.x, v.x + h.y);
    }
}
KERNEL(k_bytes) {
    unsigned char *to = (unsigned char *)out;
    const signed char *from = (const signed char *)in;
    for (u32 i = ID; i < n; i += ALL) to[i] = from[i] / 3 + from[n - 1 - i];
}
KERNEL(k_primes) {
    for (u32 i = ID; i < n / 8; i += ALL) {
        u32 x = i * 2 + 3, prime = 1;
        for (u32 d = 3; d * d <= x; d += 2)
            if (x % d == 0) {
                prime = 0;
                break;
            }
        out[i] = prime;
    }
}
KERNEL(k_random) {
    for (u32 i = ID; i < n / 4; i += ALL) {
        u32 c[4] = {in[i], i, 7, 9}, key0 = 0x1234, key1 = 0x9876;
        for (int r = 0; r < 10; r++) {
            u64 a = (u64)c[0] * 0xd2511f53, b = (u64)c[2] * 0xcd9e8d57;
            u32 x = (u32)(b >> 32) ^ c[1] ^ key0, y = (u32)(a >> 32) ^ c[3] ^ key1;
            c[0] = x, c[1] = (u32)b, c[2] = y, c[3] = (u32)a;
            key0 += 0x9e3779b9, key1 += 0xbb67ae85;
        }
        for (int k = 0; k < 4; k++) out[i * 4 + k] = c[k];
    }
}
KERNEL(k_triangular) {
    __shared__ double m[8][9];
    if (threadIdx.x < 64) m[threadIdx.x / 8][threadIdx.x % 8] = wide(in[blockIdx.x * 64 + threadIdx.x]);
    __syncthreads();
    for (u32 k = 0; k < 8; k++) {
        u32 r = threadIdx.x / 8, c = threadIdx.x % 8;
        if (threadIdx.x < 64 && r > k && c == 0) m[r][k] /= m[k][k];
        __syncthreads();
        if (threadIdx.x < 64 && r > k && c > k) m[r][c] -= m[r][k] * m[k][c];
        __syncthreads();
    }
    if (threadIdx.x < 64) ((double *)out)[blockIdx.x * 64 + threadIdx.x] = m[threadIdx.x / 8][threadIdx.x % 8];
}
