#version 450
// Multiply-adds in eight independent chains of SCALAR (float, double or uint), for the rate of them.
layout(local_size_x = 256) in;
layout(push_constant) uniform Parameters { SCALAR factor; SCALAR addend; uint rounds; };
layout(std430, binding = 0) writeonly buffer Result { SCALAR result[]; };

#ifdef WHOLE
#define STEP(x) x = x * factor + addend
#else
#define STEP(x) x = fma(x, factor, addend)
#endif

void main() {
    uint i = gl_GlobalInvocationID.x;
    SCALAR start = SCALAR(i & 7u);
    SCALAR a = start, b = start, c = start, d = start, e = start, f = start, g = start, h = start;
    // Without this the chains are equal and one of them would do.
    b += SCALAR(1); c += SCALAR(2); d += SCALAR(3); e += SCALAR(4); f += SCALAR(5); g += SCALAR(6); h += SCALAR(7);
    for (uint round = 0; round < rounds; round++) {
        for (uint step = 0; step < 16; step++) {
            STEP(a); STEP(b); STEP(c); STEP(d); STEP(e); STEP(f); STEP(g); STEP(h);
        }
    }
    result[i] = a + b + c + d + e + f + g + h;
}
