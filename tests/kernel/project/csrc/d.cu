__global__ void kernel_d(float* x) { x[threadIdx.x] *= 2.0f; }
