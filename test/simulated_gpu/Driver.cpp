// What PyTorch asks of the driver before it asks the runtime. The library's name (SONAME) is the driver's, so that whoever looks for that finds this.
// A context is its device's number plus one. Without cuda.h, whose declarations the refusals below would not match.
#include "Runtime.h"

#include <cstdint>

namespace {

constexpr int kInvalidDevice = 101, kNotSupported = 801; // CUDA_ERROR_...

void* context_of(int device) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
}

} // namespace

extern "C" {

int cuCtxGetCurrent(void** context) {
  *context = context_of(simulated_gpu::current_device());
  return 0;
}

int cuCtxSetCurrent(void* context) {
  if (context) simulated_gpu::current_device() = static_cast<int>(reinterpret_cast<intptr_t>(context) - 1);
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < simulated_gpu::kDevices ? 0 : kInvalidDevice;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = context_of(device);
  return 0;
}

int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

int cuGetErrorString(int, const char** text) {
  *text = "not supported by a simulated GPU";
  return 0;
}

#define REFUSED(name)     \
  int name() {            \
    return kNotSupported; \
  }
REFUSED(cuDeviceGetAttribute)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuFuncSetCacheConfig)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate_v2)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleLoad)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuPointerGetAttribute)
REFUSED(cuTensorMapEncodeTiled)
#undef REFUSED

} // extern "C"
