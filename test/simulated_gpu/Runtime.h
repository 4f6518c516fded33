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
  std::vector<Work> work; // in the order of capture, which is one that the dependencies allow
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  unsigned long long id = 0;
  int device = 0;
  bool valid = true;
};

struct Stream {
  int device = 0;
  int priority = 0;
  bool blocking = true; // waits for the legacy stream, and that one for it
  std::deque<Work> pending;
  int64_t issued = 0, done = 0;
  std::shared_ptr<Graph> captured;
};

struct Event {
  int device = 0;
  bool timed = true;
  // Where it was recorded last, and how far that stream must have come.
  std::shared_ptr<Stream> stream;
  int64_t place = 0;
  std::shared_ptr<Graph> captured; // recorded in a capture
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);
};

// One lock for everything: works run under it.
std::recursive_mutex& mutex();

// A thread's current device, its last error (which `failed` leaves and gives back), its mode of
// capturing.
int& current_device();
cudaError_t failed(cudaError_t error);
cudaStreamCaptureMode& capture_mode();

// ---- streams ----

// By handle: 0 and cudaStreamLegacy are the current device's own. nullptr: none.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);
// Works off what the stream was given up to a place, or all.
void advance(Stream& stream, int64_t place);
void finish(Stream& stream);
void finish_device(int device);
cudaError_t enqueue(const std::shared_ptr<Stream>& stream, Work work);
// Whether a call that waits, or that a graph cannot hold, is refused in this thread now: some
// stream is captured, in a mode that forbids it.
bool capture_forbids();
// Of work within a capture that was begun: the memory of a graph's pool holds no numbers yet.
bool capturing();

// ---- memory ----

struct Place {
  int device = -1; // -1: the host's
  bool pinned = false;
  const char* begin = nullptr; // of the allocation
  size_t bytes = 0;
};
Place place_of(const void* pointer);
bool within(const Place& place, const void* pointer, size_t bytes);
} // namespace simulated_gpu
