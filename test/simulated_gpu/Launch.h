// The interface of a simulated GPU for kernels. It is resolved when the runtime of Runtime.h is
// loaded.
#pragma once
#include <cuda_runtime_api.h>

extern "C" {
// Adds work to the stream, or to the graph that is captured there. A stream runs it once, a graph
// once per launch; drop(data) follows the last run.
cudaError_t simulatedGpuLaunch(cudaStream_t stream, const char* kernel, void (*run)(void*),
                               void (*drop)(void*), void* data);

// Between the two calls, the GPU's memory can be read and written. Otherwise an access gets
// SIGSEGV, as on a machine with a GPU.
void simulatedGpuOpenMemory(void);
void simulatedGpuCloseMemory(void);
}

namespace simulated_gpu {

class OpenMemory {
 public:
  OpenMemory() { simulatedGpuOpenMemory(); }
  ~OpenMemory() { simulatedGpuCloseMemory(); }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

// Launches a function without arguments, and keeps a copy of it.
template <typename Function>
cudaError_t launch(cudaStream_t stream, const char* kernel, const Function& function) {
  return simulatedGpuLaunch(
      stream, kernel, [](void* data) { (*static_cast<Function*>(data))(); },
      [](void* data) { delete static_cast<Function*>(data); }, new Function(function));
}

} // namespace simulated_gpu
