#version 450
// Copies 16 bytes an invocation, for the bandwidth of memory.
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer Source { uvec4 source[]; };
layout(std430, binding = 1) writeonly buffer Target { uvec4 target[]; };

void main() { target[gl_GlobalInvocationID.x] = source[gl_GlobalInvocationID.x]; }
