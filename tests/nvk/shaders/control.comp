#version 450
// Loops, conditions and choices that lanes leave at different times, with memory of each lane's own, eight results for
// each word.
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer Words { uint words[]; };
layout(std430, binding = 1) writeonly buffer Result { uint result[]; };

uint steps(uint number) {
    uint count = 0u;
    while (number != 1u && count < 200u) {
        number = (number & 1u) == 0u ? number >> 1 : number * 3u + 1u;
        count++;
    }
    return count;
}

void main() {
    uint index = gl_GlobalInvocationID.x;
    uint word = words[index];
    uint place = index * 8u;
    uint own[16];
    for (uint at = 0u; at < 16u; at++) {
        own[at] = word * (at + 1u) + words[index + at];
    }
    result[place] = steps((word & 1023u) + 1u);
    uint chosen = 0u;
    switch (word & 7u) {
    case 0u: chosen = word + 1u; break;
    case 1u: chosen = word * 5u; break;
    case 2u: chosen = ~word; // falls through
    case 3u: chosen ^= word >> 3; break;
    case 6u: chosen = 600u; break;
    default: chosen = 7777u;
    }
    result[place + 1u] = chosen;
    uint total = 0u;
    for (uint outer = 0u; outer < (word & 15u); outer++) {
        for (uint inner = 0u; inner < 8u; inner++) {
            if (((outer + inner) & 3u) == 3u) continue;
            if (inner > outer) break;
            total += outer * 17u + inner;
        }
    }
    result[place + 2u] = total;
    // Places that are known only when it runs.
    uint at = word & 15u;
    uint walked = 0u;
    for (uint round = 0u; round < 20u; round++) {
        walked += own[at];
        own[(at * 3u + 1u) & 15u] ^= walked;
        at = (at * 5u + (walked & 3u)) & 15u;
    }
    result[place + 3u] = walked;
    result[place + 4u] = own[(word >> 4) & 15u];
    if ((word & 32u) != 0u) {
        result[place + 5u] = 1u;
        result[place + 6u] = 2u;
        result[place + 7u] = 3u;
        return;
    }
    result[place + 5u] = own[15];
    result[place + 6u] = gl_LocalInvocationID.x + gl_WorkGroupID.x * 1000u;
    result[place + 7u] = gl_NumWorkGroups.x;
}
