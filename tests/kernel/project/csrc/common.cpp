#define Py_LIMITED_API 0x03090000
#include <Python.h>

namespace c10 {
struct Allocator;
Allocator* GetCPUAllocator();
}  // namespace c10
int old_answer();

// Ties the library to torch's ABI as sgl-kernel's is: the symbol is resolved by libc10.so.
extern "C" __attribute__((visibility("default"))) const void* uses_torch() {
  return old_answer() ? c10::GetCPUAllocator() : nullptr;
}

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "common_ops", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_common_ops() { return PyModule_Create(&module); }
