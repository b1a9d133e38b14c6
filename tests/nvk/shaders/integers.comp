#version 450
// Operations on whole numbers, eight results for each pair of words.
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer Words { uint words[]; };
layout(std430, binding = 1) writeonly buffer Result { uint result[]; };

void main() {
    uint index = gl_GlobalInvocationID.x;
    uint a = words[index];
    uint b = words[index + 1];
    uint shift = b & 31u;
    int signed_a = int(a);
    uint high, low, carry, borrow;
    umulExtended(a, b, high, low);
    int signed_high, signed_low;
    imulExtended(signed_a, int(b), signed_high, signed_low);
    uint sum = uaddCarry(a, b, carry);
    uint difference = usubBorrow(a, b, borrow);
    uint place = index * 8u;
    result[place] = uint(bitCount(a)) + uint(findMSB(a)) * 64u + uint(findLSB(b)) * 4096u + uint(findMSB(signed_a)) * 262144u;
    result[place + 1u] = bitfieldExtract(a, int(shift & 15u), 9) ^ uint(bitfieldExtract(signed_a, int(shift & 15u), 11));
    result[place + 2u] = bitfieldInsert(a, b, int(shift & 15u), 13) + bitfieldReverse(b);
    result[place + 3u] = high ^ (low * 3u) ^ uint(signed_high);
    result[place + 4u] = sum + carry * 7u + (difference ^ borrow);
    result[place + 5u] = a / (b | 1u) + a % (b >> 20 | 1u);
    result[place + 6u] = uint(signed_a / int(b >> 12 | 1u)) ^ uint(signed_a % int(b >> 18 | 1u));
    result[place + 7u] = (a << shift) + (a >> shift) + uint(signed_a >> shift) + uint(min(signed_a, int(b))) + max(a, b) + uint(abs(signed_a));
}
