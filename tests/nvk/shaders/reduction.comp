#version 450
// Sum, smallest and largest of whole numbers: first within a group in shared memory, then by atomics.
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer Numbers { uint numbers[]; };
layout(std430, binding = 1) buffer Result { uint total; uint smallest; uint largest; uint groups; };
shared uint partial[256];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint number = numbers[gl_GlobalInvocationID.x];
    partial[lane] = number;
    barrier();
    for (uint half_size = 128; half_size > 0; half_size /= 2) {
        if (lane < half_size) {
            partial[lane] += partial[lane + half_size];
        }
        barrier();
    }
    atomicMin(smallest, number);
    atomicMax(largest, number);
    if (lane == 0) {
        atomicAdd(total, partial[0]);
        atomicAdd(groups, 1);
    }
}
