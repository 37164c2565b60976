#include "heavy.h"
__global__ void kernel_d(float* x) { x[threadIdx.x] *= Range<4, 4 + TEST_HEAVY + 1>::value; }
