#version 450
// c = a b for square matrices, by tiles in shared memory. The size is a multiple of 16.
const uint TILE = 16;
layout(local_size_x = 16, local_size_y = 16) in;
layout(push_constant) uniform Parameters { uint size; };
layout(std430, binding = 0) readonly buffer A { float a[]; };
layout(std430, binding = 1) readonly buffer B { float b[]; };
layout(std430, binding = 2) writeonly buffer C { float c[]; };
shared float a_tile[TILE][TILE];
shared float b_tile[TILE][TILE];

void main() {
    uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y;
    uint row = gl_GlobalInvocationID.y, column = gl_GlobalInvocationID.x;
    float sum = 0.0;
    for (uint tile = 0; tile < size; tile += TILE) {
        a_tile[y][x] = a[row * size + tile + x];
        b_tile[y][x] = b[(tile + y) * size + column];
        barrier();
        for (uint k = 0; k < TILE; k++) {
            sum += a_tile[y][k] * b_tile[k][x];
        }
        barrier();
    }
    c[row * size + column] = sum;
}
