#version 450
// Atomics in shared memory and in a buffer, whose end does not depend on their order; eight results for each group.
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer Words { uint words[]; };
layout(std430, binding = 1) buffer Result { uint result[]; };
shared uint kept[8];

void main() {
    uint index = gl_GlobalInvocationID.x;
    uint lane = gl_LocalInvocationID.x;
    uint word = words[index];
    if (lane < 8u) {
        kept[lane] = lane == 1u || lane == 4u ? 0xffffffffu : 0u;
    }
    barrier();
    atomicAdd(kept[0], word);
    atomicMin(kept[1], word);
    atomicMax(kept[2], word);
    atomicOr(kept[3], 1u << (word & 31u));
    atomicAnd(kept[4], ~(1u << (word >> 27)));
    atomicXor(kept[5], word);
    // A lock of sorts: each takes the next number.
    uint seen = atomicAdd(kept[6], 1u);
    for (uint before = 0u;;) {
        uint found = atomicCompSwap(kept[7], before, before + (word & 0xffu) + seen);
        if (found == before) break;
        before = found;
    }
    barrier();
    uint place = gl_WorkGroupID.x * 8u;
    if (lane < 8u) {
        atomicExchange(result[place + lane], kept[lane]);
    }
    // Words behind those of all groups are all groups'.
    uint all = gl_NumWorkGroups.x * 8u;
    atomicAdd(result[all], word);
    atomicMax(result[all + 1u], word ^ 0x55555555u);
    atomicXor(result[all + 2u], word * 3u);
    atomicOr(result[all + 3u], word & 0x11111111u);
    for (uint before = 0u;;) {
        uint found = atomicCompSwap(result[all + 4u], before, before + (word >> 8));
        if (found == before) break;
        before = found;
    }
}
