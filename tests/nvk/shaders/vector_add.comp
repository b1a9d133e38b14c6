#version 450
// result = left + right, whole numbers.
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer Left { uint left[]; };
layout(std430, binding = 1) readonly buffer Right { uint right[]; };
layout(std430, binding = 2) writeonly buffer Result { uint result[]; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    result[i] = left[i] + right[i];
}
