#version 450
// Operations on floats whose results are exact, eight for each pair of words.
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer Words { uint words[]; };
layout(std430, binding = 1) writeonly buffer Result { uint result[]; };

void main() {
    uint index = gl_GlobalInvocationID.x;
    // Sixteenths, of which none has more bits than a float.
    float a = float(int(words[index] & 0xffffu) - 32768) * 0.0625;
    float b = float(words[index + 1] & 0xfffu) * 0.0625 - 100.0;
    uint place = index * 8u;
    result[place] = floatBitsToUint(floor(a) + ceil(b));
    result[place + 1u] = floatBitsToUint(trunc(a) - roundEven(b));
    result[place + 2u] = floatBitsToUint(fma(a, b, 0.25));
    result[place + 3u] = uint(int(a)) ^ uint(int(b * 4.0));
    result[place + 4u] = packHalf2x16(vec2(floor(a * 0.125), floor(b)));
    vec2 halves = unpackHalf2x16(words[index] & 0x3fff3fffu | 0x04000400u);
    result[place + 5u] = floatBitsToUint(halves.x) ^ floatBitsToUint(halves.y);
    result[place + 6u] = floatBitsToUint(clamp(a, -20.0, abs(b)) + min(a, b) - max(-a, b));
    result[place + 7u] = (a < b ? 1u : 0u) + (a >= 0.0 ? 2u : 0u) + (a != b ? 4u : 0u) + floatBitsToUint(mix(a, b, a > b)) * 8u;
}
