#include "heavy.h"
__global__ void kernel_b(float* x) { x[threadIdx.x] *= Range<2, 2 + TEST_HEAVY + 1>::value; }
