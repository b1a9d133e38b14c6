// The programs of the papers' table, written from the algorithms. `papers.cubin` is made of this by
// `./build.sh NVCC PTXAS` with nvcc 13.5 (to PTX 8.7) and ptxas of CUDA 12.8, whose cubins NVIDIA's driver
// 550 takes:
//
//     nvcc -arch=compute_90 -fmad=false -ptx papers.cu -o papers.ptx
//     sed -i 's/^\.version .*/.version 8.7/' papers.ptx
//     ptxas -arch=sm_90 --fmad=false papers.ptx -o papers.cubin
//
// Products and sums are not fused, so that a processor gives the same bits; where functions of the GPU's own
// are used (exp), results are compared within a tolerance.
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__ void
#define ID (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)

// A number that looks random, for a number.
__device__ __forceinline__ u32 mix(u32 x) {
    x = (x ^ (x >> 15)) * 0x9e3779b1u;
    x = (x ^ (x >> 13)) * 0x85ebca77u;
    return x ^ (x >> 16);
}

// From 0 to 1, in steps of 2^-24.
__device__ __forceinline__ float unit(u32 x) { return (float)(mix(x) >> 8) * 0x1p-24f; }

__device__ __forceinline__ u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// ---- What all need

KERNEL nop() {}

// Ends when the processor has written, or after so many nanoseconds: what is behind it is queued by then.
KERNEL gate(volatile u32 *word, u32 patience) {
    u64 end = now() + patience;
    while (*word == 0 && now() < end) {}
}

// Keeps the GPU's clock in the next place.
KERNEL stamp(u64 *out, u32 *count, u32 room) {
    u32 place = atomicAdd(count, 1u);
    if (place < room) out[place] = now();
}

KERNEL fill_unit(float *out, u32 count, u32 seed, float scale, float base) {
    for (u32 i = ID; i < count; i += ALL) out[i] = base + scale * unit(i + seed);
}

KERNEL fill_below(u32 *out, u32 count, u32 seed, u32 limit) {
    for (u32 i = ID; i < count; i += ALL) out[i] = mix(i + seed) % limit;
}

KERNEL fill_zero(u32 *out, u32 count) {
    for (u32 i = ID; i < count; i += ALL) out[i] = 0;
}

KERNEL copy_words(const u32 *from, u32 *to, u32 count) {
    for (u32 i = ID; i < count; i += ALL) to[i] = from[i];
}

// ---- LOOP

KERNEL loop(u32 *out, u32 rounds) {
    u32 value = ID;
#pragma unroll 1
    for (u32 i = 0; i < rounds; i++) value = value * 1664525u + 1013904223u;
    out[ID] = value;
}

// ---- MADD, FMADD: the sum of pairs of matrices, each turned by a row more

template <typename T> __device__ __forceinline__ void add(const T *a, const T *b, T *c, u32 side, u32 rounds) {
    u32 x = ID, y = blockIdx.y;
    if (x >= side) return;
    T sum = 0;
    for (u32 i = 0; i < rounds; i++) {
        u32 row = y + i < side ? y + i : y + i - side;
        sum += a[row * side + x] + b[row * side + x];
    }
    c[y * side + x] = sum;
}

KERNEL madd(const u32 *a, const u32 *b, u32 *c, u32 side, u32 rounds) { add(a, b, c, side, rounds); }
KERNEL fmadd(const float *a, const float *b, float *c, u32 side, u32 rounds) { add(a, b, c, side, rounds); }

// ---- MMUL, FMMUL: by tiles in shared memory

template <typename T> __device__ __forceinline__ void multiply(const T *a, const T *b, T *c, u32 side) {
    __shared__ T left[16][16], right[16][17];
    u32 x = threadIdx.x, y = threadIdx.y;
    u32 row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    T sum = 0;
    for (u32 k = 0; k < side; k += 16) {
        left[y][x] = a[row * side + k + x];
        right[y][x] = b[(k + y) * side + column];
        __syncthreads();
        for (u32 i = 0; i < 16; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * side + column] = sum;
}

KERNEL mmul(const u32 *a, const u32 *b, u32 *c, u32 side) { multiply(a, b, c, side); }
KERNEL fmmul(const float *a, const float *b, float *c, u32 side) { multiply(a, b, c, side); }

// ---- BP: a layer of 16 hidden units behind `inputs`, and one unit behind them

#define HIDDEN 16

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

// 16 x 16 threads: sums over inputs of this block, for each hidden unit.
KERNEL bp_forward(const float *input, const float *weight, float *part, u32 inputs) {
    __shared__ float sums[16][HIDDEN];
    u32 j = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (u32 i = blockIdx.x * 16 + y; i < inputs; i += gridDim.x * 16) sum += input[i] * weight[i * HIDDEN + j];
    sums[y][j] = sum;
    __syncthreads();
    for (u32 half = 8; half > 0; half /= 2) {
        if (y < half) sums[y][j] += sums[y + half][j];
        __syncthreads();
    }
    if (y == 0) part[blockIdx.x * HIDDEN + j] = sums[0][j];
}

// 16 x 16 threads of one block: what hidden units say, and how wrong they are. Kept are both, 32 an epoch.
KERNEL bp_hidden(const float *part, u32 parts, float *outer, float *kept, float scale, float target, float rate) {
    __shared__ float sums[16][HIDDEN];
    __shared__ float wrong;
    u32 j = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (u32 i = y; i < parts; i += 16) sum += part[i * HIDDEN + j];
    sums[y][j] = sum;
    __syncthreads();
    for (u32 half = 8; half > 0; half /= 2) {
        if (y < half) sums[y][j] += sums[y + half][j];
        __syncthreads();
    }
    float says = sigmoid(sums[0][j] * scale);
    __syncthreads();
    if (y == 0) sums[1][j] = says * outer[j];
    __syncthreads();
    if (y == 0 && j == 0) {
        float all = 0;
        for (u32 i = 0; i < HIDDEN; i++) all += sums[1][i];
        float output = sigmoid(all);
        wrong = output * (1.0f - output) * (target - output);
    }
    __syncthreads();
    if (y == 0) {
        kept[j] = says;
        kept[HIDDEN + j] = says * (1.0f - says) * (wrong * outer[j]);
        outer[j] = outer[j] + rate * (wrong * says);
    }
}

KERNEL bp_adjust(const float *input, float *weight, float *before, const float *kept, u32 inputs, float rate,
                 float momentum) {
    for (u32 i = ID; i < inputs * HIDDEN; i += ALL) {
        float step = rate * kept[HIDDEN + i % HIDDEN] * input[i / HIDDEN] + momentum * before[i];
        weight[i] = weight[i] + step;
        before[i] = step;
    }
}

// ---- BFS: levels of all nodes, from several sources at once

#define UNSEEN 0xffffffffu

KERNEL bfs_start(u32 *level, u32 nodes, u32 stride) {
    u32 source = blockIdx.y;
    if (ID < nodes) level[source * nodes + ID] = ID == source * stride % nodes ? 0 : UNSEEN;
}

KERNEL bfs_level(const u32 *edge, u32 *level, u32 nodes, u32 degree, u32 depth) {
    u32 node = ID;
    u32 *mine = level + blockIdx.y * nodes;
    if (node >= nodes || mine[node] != depth) return;
    for (u32 i = 0; i < degree; i++) {
        u32 next = edge[node * degree + i];
        if (mine[next] == UNSEEN) mine[next] = depth + 1;
    }
}

// ---- HS: heat on a chip

KERNEL hs_step(const float *power, const float *from, float *to, u32 side) {
    u32 x = ID, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    u32 at = y * side + x;
    float here = from[at];
    float north = from[y > 0 ? at - side : at], south = from[y + 1 < side ? at + side : at];
    float west = from[x > 0 ? at - 1 : at], east = from[x + 1 < side ? at + 1 : at];
    float flow = power[at] + (north + south - 2.0f * here) * 0.3f;
    flow = flow + (east + west - 2.0f * here) * 0.2f;
    flow = flow + (80.0f - here) * 0.05f;
    to[at] = here + flow * 0.25f;
}

// ---- LUD: many matrices at once, in place, by tiles of 32 x 32

#define TILE 32

KERNEL lud_fill(float *matrix, u32 side, u32 seed) {
    u32 size = side * side, i = ID;
    if (i >= size) return;
    u32 at = blockIdx.y * size + i;
    matrix[at] = unit(at + seed) + (i / side == i % side ? (float)side : 0.0f);
}

// 32 threads: the tile on the diagonal.
KERNEL lud_diagonal(float *matrix, u32 side, u32 step) {
    __shared__ float tile[TILE][TILE + 1];
    u32 x = threadIdx.x, first = step * TILE;
    float *mine = matrix + (u64)blockIdx.x * side * side + first * side + first;
    for (u32 y = 0; y < TILE; y++) tile[y][x] = mine[y * side + x];
    __syncthreads();
    for (u32 k = 0; k + 1 < TILE; k++) {
        if (x > k) {
            float ratio = tile[x][k] / tile[k][k];
            tile[x][k] = ratio;
            for (u32 i = k + 1; i < TILE; i++) tile[x][i] -= ratio * tile[k][i];
        }
        __syncthreads();
    }
    for (u32 y = 0; y < TILE; y++) mine[y * side + x] = tile[y][x];
}

// 32 threads: a tile to the right of it (z = 0), or below it (z = 1).
KERNEL lud_edge(float *matrix, u32 side, u32 step) {
    __shared__ float diagonal[TILE][TILE + 1], tile[TILE][TILE + 1];
    u32 x = threadIdx.x, first = step * TILE, other = (step + 1 + blockIdx.x) * TILE;
    float *mine = matrix + (u64)blockIdx.y * side * side;
    u32 row = blockIdx.z == 0 ? first : other, column = blockIdx.z == 0 ? other : first;
    for (u32 y = 0; y < TILE; y++) {
        diagonal[y][x] = mine[(first + y) * side + first + x];
        tile[y][x] = mine[(row + y) * side + column + x];
    }
    __syncthreads();
    if (blockIdx.z == 0) {
        for (u32 y = 1; y < TILE; y++)
            for (u32 k = 0; k < y; k++) tile[y][x] -= diagonal[y][k] * tile[k][x];
    } else {
        for (u32 i = 0; i < TILE; i++) {
            for (u32 k = 0; k < i; k++) tile[x][i] -= tile[x][k] * diagonal[k][i];
            tile[x][i] = tile[x][i] / diagonal[i][i];
        }
    }
    __syncthreads();
    for (u32 y = 0; y < TILE; y++) mine[(row + y) * side + column + x] = tile[y][x];
}

// 32 x 8 threads: a tile of what is left.
KERNEL lud_inner(float *matrix, u32 side, u32 step) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    u32 x = threadIdx.x, y = threadIdx.y, first = step * TILE;
    u32 row = (step + 1 + blockIdx.y) * TILE, column = (step + 1 + blockIdx.x) * TILE;
    float *mine = matrix + (u64)blockIdx.z * side * side;
    for (u32 i = y; i < TILE; i += 8) {
        left[i][x] = mine[(row + i) * side + first + x];
        right[i][x] = mine[(first + i) * side + column + x];
    }
    __syncthreads();
    for (u32 i = y; i < TILE; i += 8) {
        float sum = 0;
        for (u32 k = 0; k < TILE; k++) sum += left[i][k] * right[k][x];
        mine[(row + i) * side + column + x] -= sum;
    }
}

// ---- NN: for each query the nearest record

// 256 threads: the nearest one of this block's records.
KERNEL nn_near(const float *north, const float *east, const float *query, float *distance, u32 *index,
               u32 records) {
    __shared__ float far[256];
    __shared__ u32 which[256];
    u32 thread = threadIdx.x, q = blockIdx.y;
    float y = query[2 * q], x = query[2 * q + 1], best = 3.4e38f;
    u32 found = 0;
    for (u32 i = ID; i < records; i += ALL) {
        float up = north[i] - y, right = east[i] - x;
        float square = up * up + right * right;
        if (square < best) {
            best = square;
            found = i;
        }
    }
    far[thread] = best;
    which[thread] = found;
    __syncthreads();
    for (u32 half = 128; half > 0; half /= 2) {
        if (thread < half) {
            float theirs = far[thread + half];
            u32 other = which[thread + half];
            if (theirs < far[thread] || (theirs == far[thread] && other < which[thread])) {
                far[thread] = theirs;
                which[thread] = other;
            }
        }
        __syncthreads();
    }
    if (thread == 0) {
        distance[q * gridDim.x + blockIdx.x] = far[0];
        index[q * gridDim.x + blockIdx.x] = which[0];
    }
}

KERNEL nn_pick(const float *distance, const u32 *index, u32 *nearest, u32 queries, u32 parts) {
    u32 q = ID;
    if (q >= queries) return;
    u32 best = q * parts;
    for (u32 i = best + 1; i < (q + 1) * parts; i++) {
        if (distance[i] < distance[best] || (distance[i] == distance[best] && index[i] < index[best])) best = i;
    }
    nearest[q] = index[best];
}

// ---- NW: scores of pairs of sequences, by tiles of 64 x 64

#define STRIP 64

__device__ __forceinline__ u32 letter(u32 pair, u32 which, u32 at) {
    return mix((pair * 2 + which) * 65536 + at) & 3;
}

KERNEL nw_edges(short *score, u32 length, u32 gap) {
    short *mine = score + (u64)blockIdx.y * (length + 1) * (length + 1);
    u32 i = ID;
    if (i > length) return;
    mine[i] = (short)-(int)(i * gap);
    mine[i * (length + 1)] = (short)-(int)(i * gap);
}

// 64 threads: the tiles of a diagonal, which begin at `top` from above.
KERNEL nw_tiles(short *score, u32 length, u32 diagonal, u32 top, u32 gap) {
    __shared__ short tile[STRIP + 1][STRIP + 1];
    __shared__ unsigned char across[STRIP];
    u32 thread = threadIdx.x, pair = blockIdx.y, width = length + 1;
    u32 row = (top + blockIdx.x) * STRIP, column = (diagonal - top - blockIdx.x) * STRIP;
    short *mine = score + (u64)pair * width * width + (u64)row * width + column;
    u32 down = letter(pair, 0, row + thread);
    across[thread] = (unsigned char)letter(pair, 1, column + thread);
    tile[0][thread + 1] = mine[thread + 1];
    tile[thread + 1][0] = mine[(thread + 1) * width];
    if (thread == 0) tile[0][0] = mine[0];
    __syncthreads();
    for (u32 step = 0; step < 2 * STRIP - 1; step++) {
        u32 x = step - thread;
        if (step >= thread && x < STRIP) {
            int both = tile[thread][x] + (down == across[x] ? 5 : -3);
            int one = (tile[thread][x + 1] > tile[thread + 1][x] ? tile[thread][x + 1] : tile[thread + 1][x]) - (int)gap;
            tile[thread + 1][x + 1] = (short)(both > one ? both : one);
        }
        __syncthreads();
    }
    for (u32 y = 1; y <= STRIP; y++) mine[y * width + thread + 1] = tile[y][thread + 1];
}

// ---- SRAD: an image is smoothed where it is smooth

KERNEL srad_image(float *image, u32 count, u32 seed) {
    for (u32 i = ID; i < count; i += ALL) image[i] = (float)((mix(i + seed) >> 24) + 1) * 0x1p-8f;
}

// 256 threads: sum and sum of squares of this block's pixels.
KERNEL srad_sums(const float *image, float *part, u32 count) {
    __shared__ float sums[256], squares[256];
    u32 thread = threadIdx.x;
    float sum = 0, square = 0;
    for (u32 i = ID; i < count; i += ALL) {
        sum += image[i];
        square += image[i] * image[i];
    }
    sums[thread] = sum;
    squares[thread] = square;
    __syncthreads();
    for (u32 half = 128; half > 0; half /= 2) {
        if (thread < half) {
            sums[thread] += sums[thread + half];
            squares[thread] += squares[thread + half];
        }
        __syncthreads();
    }
    if (thread == 0) {
        part[2 * blockIdx.x] = sums[0];
        part[2 * blockIdx.x + 1] = squares[0];
    }
}

// 32 threads of one block: how even all of it is.
KERNEL srad_total(const float *part, u32 parts, float *even, u32 count) {
    u32 lane = threadIdx.x;
    float sum = 0, square = 0;
    for (u32 i = lane; i < parts; i += 32) {
        sum += part[2 * i];
        square += part[2 * i + 1];
    }
    for (u32 half = 16; half > 0; half /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, half);
        square += __shfl_down_sync(0xffffffffu, square, half);
    }
    if (lane == 0) {
        float mean = sum / (float)count;
        even[0] = (square / (float)count - mean * mean) / (mean * mean);
    }
}

__device__ __forceinline__ float srad_share(float here, float north, float south, float west, float east,
                                            float even) {
    north -= here, south -= here, west -= here, east -= here;
    float steep = (north * north + south * south + west * west + east * east) / (here * here);
    float bend = (north + south + west + east) / here;
    float low = 1.0f + 0.25f * bend;
    float own = (0.5f * steep - 0.0625f * (bend * bend)) / (low * low);
    float share = 1.0f / (1.0f + (own - even) / (even * (1.0f + even)));
    return share < 0.0f ? 0.0f : share > 1.0f ? 1.0f : share;
}

// 32 x 8 threads: how much each pixel gives.
KERNEL srad_shares(const float *image, float *share, const float *even, u32 side) {
    u32 x = ID, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    u32 at = y * side + x;
    float north = image[y > 0 ? at - side : at], south = image[y + 1 < side ? at + side : at];
    float west = image[x > 0 ? at - 1 : at], east = image[x + 1 < side ? at + 1 : at];
    share[at] = srad_share(image[at], north, south, west, east, even[0]);
}

KERNEL srad_update(const float *image, const float *share, float *to, u32 side, float rate) {
    u32 x = ID, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    u32 at = y * side + x, below = y + 1 < side ? at + side : at, right = x + 1 < side ? at + 1 : at;
    float here = image[at], mine = share[at];
    float north = image[y > 0 ? at - side : at] - here, west = image[x > 0 ? at - 1 : at] - here;
    float sum = mine * north + share[below] * (image[below] - here);
    sum = sum + mine * west;
    sum = sum + share[right] * (image[right] - here);
    to[at] = here + 0.25f * rate * sum;
}

// ---- SRAD2: the same by tiles in shared memory, with an evenness that is told. 16 x 16 threads.

__device__ __forceinline__ void surrounded(const float *from, float (*tile)[18], u32 side) {
    int x = threadIdx.x, y = threadIdx.y, left = blockIdx.x * 16 - 1, top = blockIdx.y * 16 - 1;
    for (int i = y * 16 + x; i < 18 * 18; i += 256) {
        int row = top + i / 18, column = left + i % 18, last = (int)side - 1;
        row = row < 0 ? 0 : row > last ? last : row;
        column = column < 0 ? 0 : column > last ? last : column;
        tile[i / 18][i % 18] = from[row * (int)side + column];
    }
    __syncthreads();
}

KERNEL srad2_shares(const float *image, float *share, float even, u32 side) {
    __shared__ float tile[18][18];
    surrounded(image, tile, side);
    u32 x = threadIdx.x + 1, y = threadIdx.y + 1;
    share[(blockIdx.y * 16 + y - 1) * side + blockIdx.x * 16 + x - 1] =
        srad_share(tile[y][x], tile[y - 1][x], tile[y + 1][x], tile[y][x - 1], tile[y][x + 1], even);
}

KERNEL srad2_update(const float *image, const float *share, float *to, u32 side, float rate) {
    __shared__ float tile[18][18], shares[18][18];
    surrounded(image, tile, side);
    surrounded(share, shares, side);
    u32 x = threadIdx.x + 1, y = threadIdx.y + 1;
    float here = tile[y][x], mine = shares[y][x];
    float sum = mine * (tile[y - 1][x] - here) + shares[y + 1][x] * (tile[y + 1][x] - here);
    sum = sum + mine * (tile[y][x - 1] - here);
    sum = sum + shares[y][x + 1] * (tile[y][x + 1] - here);
    to[(blockIdx.y * 16 + y - 1) * side + blockIdx.x * 16 + x - 1] = here + 0.25f * rate * sum;
}
