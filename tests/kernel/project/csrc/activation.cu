#include <cuda_fp16.h>

// silu(a) * b for rows of [a | b], float16.
__global__ void silu_and_mul_kernel(__half* out, const __half* in, int rows, int width) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= rows * width) return;
  const __half* row = in + (at / width) * 2 * width;
  float a = __half2float(row[at % width]);
  float b = __half2float(row[width + at % width]);
  out[at] = __float2half(a / (1.0f + expf(-a)) * b);
}

extern "C" __attribute__((visibility("default"))) const char* silu_and_mul(
    void* out, const void* in, int rows, int width) {
  int total = rows * width;
  silu_and_mul_kernel<<<(total + 255) / 256, 256>>>(
      static_cast<__half*>(out), static_cast<const __half*>(in), rows, width);
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
