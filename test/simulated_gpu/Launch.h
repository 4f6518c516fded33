// What a kernel on a simulated GPU asks of it. Resolved when the runtime of Runtime.h is loaded.
#pragma once
#include <cuda_runtime_api.h>

extern "C" {
// Puts work behind what the stream was given before, or into the graph that is captured there. It
// is run once for a stream, as often as it is launched for a graph; drop(data) follows the last
// time.
cudaError_t simulatedGpuLaunch(cudaStream_t stream, const char* kernel, void (*run)(void*),
                               void (*drop)(void*), void* data);

// Between the two the GPU's memory can be read and written; else who follows a pointer to it gets
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

// Launches a function of no arguments, of which a copy is kept.
template <typename Function>
cudaError_t launch(cudaStream_t stream, const char* kernel, const Function& function) {
  return simulatedGpuLaunch(
      stream, kernel, [](void* data) { (*static_cast<Function*>(data))(); },
      [](void* data) { delete static_cast<Function*>(data); }, new Function(function));
}

} // namespace simulated_gpu
