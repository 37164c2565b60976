__global__ void kernel_b(float* x) { x[threadIdx.x] *= 2.0f; }
