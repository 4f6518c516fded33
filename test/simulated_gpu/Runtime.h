// A CUDA runtime without a GPU, to be preloaded before PyTorch's: devices are memory of the host
// that only kernels may touch, streams are queues which are worked off as late as the program
// allows, so that what is not waited for is not there. PyTorch's own kernels cannot run:
// StockOnHost.cpp has the CPU's in their place. What is not written here is the real runtime's,
// which says that there is no GPU.
//
// Sources: the CUDA Runtime API, its sections on stream, event, memory and graph management.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace simulated_gpu {

inline constexpr int kDevices = 2;
inline constexpr size_t kMemory = size_t{4} << 30; // of each device

using Work = std::function<void()>;

struct Graph {
  std::vector<Work> work; // in the order of capture, which respects the dependencies
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  unsigned long long id = 0;
  int device = 0;
  bool valid = true;
};

struct Stream {
  int device = 0;
  int priority = 0;
  bool blocking = true; // waits for the legacy stream, and the legacy stream for it
  std::deque<Work> pending;
  int64_t issued = 0, done = 0;
  std::shared_ptr<Graph> captured;
};

struct Event {
  int device = 0;
  bool timed = true;
  // The stream where it was recorded last, and the place that the stream must reach.
  std::shared_ptr<Stream> stream;
  int64_t place = 0;
  std::shared_ptr<Graph> captured; // recorded in a capture
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);
};

// One lock for everything; works run under it.
std::recursive_mutex& mutex();

// A thread's current device, its last error (which `failed` stores and returns), and its capture
// mode.
int& current_device();
cudaError_t failed(cudaError_t error);
cudaStreamCaptureMode& capture_mode();

// ---- streams ----

// Returns the stream of a handle: 0 and cudaStreamLegacy mean the current device's own. nullptr:
// none.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);
// Runs the stream's work up to a place, or all of it.
void advance(Stream& stream, int64_t place);
void finish(Stream& stream);
void finish_device(int device);
cudaError_t enqueue(const std::shared_ptr<Stream>& stream, Work work);
// Tells whether this thread may not make a waiting call, or one that a graph cannot hold: some
// stream is captured in a mode that forbids it.
bool capture_forbids();
// Tells whether work runs in a capture, where the memory of a graph's pool holds no numbers yet.
bool capturing();

// ---- memory ----

struct Place {
  int device = -1; // -1: the host
  bool pinned = false;
  const char* begin = nullptr; // of the allocation
  size_t bytes = 0;
};
Place place_of(const void* pointer);
bool within(const Place& place, const void* pointer, size_t bytes);
} // namespace simulated_gpu
