#version 450
// Every invocation stores one number: the least that a launch can be seen by.
layout(local_size_x = 256) in;
layout(std430, binding = 0) writeonly buffer Result { uint result[]; };

void main() { result[gl_GlobalInvocationID.x] = 0x600dbeefu; }
