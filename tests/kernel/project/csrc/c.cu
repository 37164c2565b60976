__global__ void kernel_c(float* x) { x[threadIdx.x] *= 2.0f; }
