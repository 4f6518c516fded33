// Devices, errors, and the kernels of other libraries, which cannot run.
#include "Launch.h"
#include "Runtime.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace simulated_gpu {

std::recursive_mutex& mutex() {
  static auto& lock = *new std::recursive_mutex;
  return lock;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

static cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

cudaStreamCaptureMode& capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

static std::map<const void*, std::string>& kernel_names() {
  static auto& names = *new std::map<const void*, std::string>;
  return names;
}

static cudaError_t refuse_kernel(const void* kernel) {
  const std::lock_guard lock(mutex());
  const auto found = kernel_names().find(kernel);
  const std::string name = found == kernel_names().end() ? "unknown" : found->second;
  static auto& told = *new std::set<std::string>;
  if (told.insert(name).second)
    std::fprintf(stderr, "simulated GPU: expected a kernel of torch_dtypes, but got %s\n",
                 name.c_str());
  return failed(cudaErrorNotSupported);
}

} // namespace simulated_gpu

using namespace simulated_gpu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  current_device() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof(p.name), "Simulated GPU");
  p.totalGlobalMem = kMemory;
  p.major = 9; // Hopper's numbers
  p.multiProcessorCount = 132;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.sharedMemPerBlock = 49152;
  p.sharedMemPerBlockOptin = 232448;
  p.sharedMemPerMultiprocessor = 233472;
  p.l2CacheSize = 50 << 20;
  p.pciBusID = device + 1;
  p.unifiedAddressing = p.concurrentKernels = 1;
  std::memset(&p.uuid, device + 1, sizeof(p.uuid));
  for (int& size : p.maxGridSize) size = 65535;
  p.maxGridSize[0] = 0x7fffffff;
  for (int& size : p.maxThreadsDim) size = 1024;
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; return cudaSuccess;
    default: *value = 0; return cudaSuccess;
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, bytes, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

// Devices have no access to each other: copies between them go through the runtime, in the order of
// both devices' streams.
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error(), cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error();
}

cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

// ---- PyTorch's kernels ----

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  const std::lock_guard lock(mutex());
  kernel_names()[host] = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse_kernel(kernel);
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse_kernel(kernel);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) {
  return refuse_kernel(kernel);
}

} // extern "C"
