#include "heavy.h"
__global__ void kernel_c(float* x) { x[threadIdx.x] *= Range<3, 3 + TEST_HEAVY + 1>::value; }
