__global__ void kernel_a(float* x) { x[threadIdx.x] *= 2.0f; }
