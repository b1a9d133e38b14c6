#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_shuffle_relative : require
#extension GL_KHR_shader_subgroup_vote : require
// What lanes of a subgroup of 32 tell each other, eight results for each word.
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer Words { uint words[]; };
layout(std430, binding = 1) writeonly buffer Result { uint result[]; };

void main() {
    uint index = gl_GlobalInvocationID.x;
    uint word = words[index];
    bool odd = (word & 1u) != 0u;
    uint place = index * 8u;
    result[place] = subgroupAdd(word);
    result[place + 1u] = subgroupInclusiveAdd(word) ^ subgroupExclusiveMax(word & 0xffffu);
    result[place + 2u] = subgroupBallot(odd).x;
    result[place + 3u] = subgroupShuffle(word, (gl_SubgroupInvocationID * 7u + 3u) & 31u);
    result[place + 4u] = subgroupShuffleXor(word, 5u) + subgroupBroadcast(word, 17u);
    result[place + 5u] = subgroupMin(word) ^ subgroupXor(word);
    result[place + 6u] = (subgroupAny(word > 0xf0000000u) ? 1u : 0u) + (subgroupAll(word != 0u) ? 2u : 0u) + subgroupBallotBitCount(subgroupBallot(odd)) * 4u;
    // Of those lanes alone that are there.
    uint some = 0u;
    if (odd) {
        some = subgroupAdd(word >> 4) + (subgroupElect() ? 1u : 0u);
    }
    result[place + 7u] = some;
}
