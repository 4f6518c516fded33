// The calls that PyTorch makes to the driver before it uses the runtime. The library's name
// (SONAME) is the driver's, so that the loader finds this one. A context is its device's number
// plus one. cuda.h is not included, since its declarations would not match the refusals below.
#include "Runtime.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

constexpr int kInvalidValue = 1, kInvalidDevice = 101, kNotSupported = 801; // CUDA_ERROR_...
constexpr int kContext = 1, kMemoryType = 2, kDeviceOrdinal = 9; // CU_POINTER_ATTRIBUTE_...
constexpr unsigned kDeviceMemory = 2; // CU_MEMORYTYPE_DEVICE

void* context_of(int device) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
}

} // namespace

extern "C" {

int cuInit(unsigned) {
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = context_of(simulated_gpu::current_device());
  return 0;
}

int cuCtxSetCurrent(void* context) {
  if (context)
    simulated_gpu::current_device() = static_cast<int>(reinterpret_cast<intptr_t>(context) - 1);
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < simulated_gpu::kDevices ? 0 : kInvalidDevice;
}

int cuDeviceGetCount(int* count) {
  *count = simulated_gpu::kDevices;
  return 0;
}

int cuDeviceGetUuid(char* sixteen, int device) {
  std::fill_n(sixteen, 16, static_cast<char>(device + 1));
  return 0;
}

int cuMemGetAddressRange_v2(uintptr_t* begin, size_t* bytes, uintptr_t pointer) {
  const auto place = simulated_gpu::place_of(reinterpret_cast<const void*>(pointer));
  if (place.device < 0) return kInvalidValue;
  if (begin) *begin = reinterpret_cast<uintptr_t>(place.begin);
  if (bytes) *bytes = place.bytes;
  return 0;
}

int cuPointerGetAttribute(void* value, int attribute, uintptr_t pointer) {
  const auto place = simulated_gpu::place_of(reinterpret_cast<const void*>(pointer));
  if (place.device < 0) return kInvalidValue;
  switch (attribute) {
    case kContext: *static_cast<void**>(value) = context_of(place.device); return 0;
    case kMemoryType: *static_cast<unsigned*>(value) = kDeviceMemory; return 0;
    case kDeviceOrdinal: *static_cast<int*>(value) = place.device; return 0;
    default: return kNotSupported;
  }
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

int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_NOT_SUPPORTED";
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
REFUSED(cuCtxGetDevice)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDevicePrimaryCtxRelease)
REFUSED(cuDevicePrimaryCtxReset)
REFUSED(cuDriverGetVersion)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuFuncSetCacheConfig)
REFUSED(cuGetExportTable)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate_v2)
REFUSED(cuMemcpyDtoH_v2)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleGetGlobal_v2)
REFUSED(cuModuleLoad)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleLoadFatBinary)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuTensorMapEncodeTiled)
#undef REFUSED

} // extern "C"
