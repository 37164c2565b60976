#include "heavy.h"
__global__ void kernel_a(float* x) { x[threadIdx.x] *= Range<1, 1 + TEST_HEAVY + 1>::value; }
