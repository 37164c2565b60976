#include "heavy.h"
__global__ void kernel_heavy(int* x) { x[threadIdx.x] = Range<0, TEST_HEAVY + 1>::value; }
