// Streams and events: queues, which run when a caller waits.
#include "Launch.h"
#include "Runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

namespace simulated_gpu {
namespace {

// SIMULATED_GPU_EAGER=1 runs everything at once, which shows whether a failure comes from a missing
// wait.
const bool eager = [] {
  const char* const word = std::getenv("SIMULATED_GPU_EAGER");
  return word && *word == '1';
}();

std::map<cudaStream_t, std::shared_ptr<Stream>>& streams() {
  static auto& made = *new std::map<cudaStream_t, std::shared_ptr<Stream>>;
  return made;
}
std::set<Event*>& events() {
  static auto& made = *new std::set<Event*>;
  return made;
}
std::vector<std::shared_ptr<Graph>>& captures() { // captures under way
  static auto& found = *new std::vector<std::shared_ptr<Graph>>;
  return found;
}

const std::shared_ptr<Stream>& legacy(int device) {
  static auto& own = *new std::vector<std::shared_ptr<Stream>>;
  if (own.empty()) {
    for (int i = 0; i < kDevices; ++i) own.push_back(std::make_shared<Stream>(Stream{.device = i}));
  }
  return own[device];
}

double now() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

cudaError_t create(cudaStream_t* handle, unsigned flags, int priority) {
  const std::lock_guard lock(mutex());
  auto made = std::make_shared<Stream>(Stream{.device = current_device(),
                                              .priority = priority,
                                              .blocking = !(flags & cudaStreamNonBlocking)});
  *handle = reinterpret_cast<cudaStream_t>(made.get());
  streams()[*handle] = made;
  return cudaSuccess;
}

Event* event_of(cudaEvent_t handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  return events().contains(event) ? event : nullptr;
}

bool arrived(const Event& event) {
  return !event.stream || event.stream->done >= event.place;
}

// Callbacks into the program run on a thread of the driver, without a wait.
cudaError_t call_back(cudaStream_t handle, Work work) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = enqueue(stream, std::move(work))) return error;
  if (!stream->captured) {
    std::thread([stream, place = stream->issued] {
      const std::lock_guard lock(mutex());
      advance(*stream, place);
    }).detach();
  }
  return cudaSuccess;
}

} // namespace

std::shared_ptr<Stream> stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy(current_device());
  const auto found = streams().find(handle);
  return found == streams().end() ? nullptr : found->second;
}

void advance(Stream& stream, int64_t place) {
  while (stream.done < place && !stream.pending.empty()) {
    const Work work = std::move(stream.pending.front());
    stream.pending.pop_front();
    {
      const OpenMemory open;
      work();
    }
    ++stream.done;
  }
}

void finish(Stream& stream) {
  if (&stream == legacy(stream.device).get()) {
    for (const auto& [handle, other] : streams()) {
      if (other->blocking && other->device == stream.device) advance(*other, other->issued);
    }
  }
  advance(stream, stream.issued);
}

void finish_device(int device) {
  advance(*legacy(device), legacy(device)->issued);
  for (const auto& [handle, stream] : streams()) {
    if (stream->device == device) advance(*stream, stream->issued);
  }
}

cudaError_t enqueue(const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->captured) {
    stream->captured->work.push_back(std::move(work));
    return cudaSuccess;
  }
  // Work ordered by the legacy stream and the blocking ones is done at once, which CUDA allows.
  if (stream == legacy(stream->device)) {
    if (!captures().empty()) {
      for (const auto& [handle, other] : streams()) {
        if (other->blocking && other->captured) return failed(cudaErrorStreamCaptureImplicit);
      }
    }
    for (const auto& [handle, other] : streams()) {
      if (other->blocking && other->device == stream->device) advance(*other, other->issued);
    }
  } else if (stream->blocking) {
    advance(*legacy(stream->device), legacy(stream->device)->issued);
  }
  stream->pending.push_back(std::move(work));
  ++stream->issued;
  if (eager) advance(*stream, stream->issued);
  return cudaSuccess;
}

bool capture_forbids() {
  if (capture_mode() == cudaStreamCaptureModeRelaxed) return false;
  for (const auto& capture : captures()) {
    if (capture->mode != cudaStreamCaptureModeRelaxed) return true;
  }
  return false;
}

bool capturing() {
  return !captures().empty();
}

} // namespace simulated_gpu

using namespace simulated_gpu;

extern "C" {

cudaError_t simulatedGpuLaunch(cudaStream_t handle, const char* kernel, void (*run)(void*),
                               void (*drop)(void*), void* data) {
  const std::lock_guard lock(mutex());
  const std::shared_ptr<void> kept(data, drop);
  static const bool traced = std::getenv("SIMULATED_GPU_TRACE");
  if (traced) std::fprintf(stderr, "simulated GPU: %s\n", kernel);
  const auto stream = stream_of(handle);
  if (!stream || stream->device != current_device()) return failed(cudaErrorInvalidResourceHandle);
  return enqueue(stream, [run, kept] { run(kept.get()); });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create(stream, 0, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return create(stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  const auto stream = handle ? stream_of(handle) : nullptr;
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  finish(*stream);
  streams().erase(handle);
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (stream->captured) {
    stream->captured->valid = false;
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  finish(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (stream->captured) return failed(cudaErrorStreamCaptureUnsupported);
  if (stream->pending.empty()) return cudaSuccess;
  advance(*stream, stream->done + 1); // so that a caller that polls makes progress
  return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(mutex());
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  finish_device(current_device());
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call_back(handle, [=] { function(data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* data,
                                  unsigned) {
  return call_back(handle, [=] { function(handle, cudaSuccess, data); });
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  const std::lock_guard lock(mutex());
  auto* const made =
      new Event{.device = current_device(), .timed = !(flags & cudaEventDisableTiming)};
  events().insert(made);
  *handle = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const std::lock_guard lock(mutex());
  Event* const event = event_of(handle);
  if (!event) return failed(cudaErrorInvalidResourceHandle);
  events().erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned) {
  const std::lock_guard lock(mutex());
  Event* const event = event_of(handle);
  const auto stream = stream_of(stream_handle);
  if (!event || !stream || event->device != stream->device)
    return failed(cudaErrorInvalidResourceHandle);
  event->captured = stream->captured;
  const auto stamp = event->milliseconds;
  const cudaError_t error = enqueue(stream, [stamp] { *stamp = now(); });
  if (!stream->captured) {
    event->stream = stream;
    event->place = stream->issued;
  }
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  const std::lock_guard lock(mutex());
  Event* const event = event_of(event_handle);
  const auto stream = stream_of(handle);
  if (!event || !stream) return failed(cudaErrorInvalidResourceHandle);
  if (event->captured) { // the stream's later work belongs to that graph
    if (stream->captured && stream->captured != event->captured)
      return failed(cudaErrorStreamCaptureMerge);
    stream->captured = event->captured;
    return cudaSuccess;
  }
  if (stream->captured) return failed(cudaErrorStreamCaptureIsolation);
  if (arrived(*event)) return cudaSuccess;
  return enqueue(stream, [other = event->stream, place = event->place] { advance(*other, place); });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::lock_guard lock(mutex());
  Event* const event = event_of(handle);
  if (!event) return failed(cudaErrorInvalidResourceHandle);
  if (event->captured) return failed(cudaErrorCapturedEvent);
  if (arrived(*event)) return cudaSuccess;
  advance(*event->stream, event->stream->done + 1);
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const std::lock_guard lock(mutex());
  Event* const event = event_of(handle);
  if (!event) return failed(cudaErrorInvalidResourceHandle);
  if (event->captured) return failed(cudaErrorCapturedEvent);
  if (event->stream) advance(*event->stream, event->place);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(mutex());
  const Event *const first = event_of(from), *const last = event_of(to);
  if (!first || !last || !first->timed || !last->timed)
    return failed(cudaErrorInvalidResourceHandle);
  if (!arrived(*first) || !arrived(*last)) return failed(cudaErrorNotReady);
  *milliseconds = static_cast<float>(*last->milliseconds - *first->milliseconds);
  return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(capture_mode(), *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream || stream->captured) return failed(cudaErrorIllegalState);
  if (stream == legacy(stream->device)) return failed(cudaErrorStreamCaptureUnsupported);
  static unsigned long long ids = 0;
  stream->captured =
      std::make_shared<Graph>(Graph{.mode = mode, .id = ++ids, .device = stream->device});
  captures().push_back(stream->captured);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream || !stream->captured) return failed(cudaErrorIllegalState);
  const auto captured = stream->captured;
  std::erase(captures(), captured);
  for (const auto& [other_handle, other] : streams()) {
    if (other->captured == captured) other->captured = nullptr;
  }
  *graph = captured->valid ? reinterpret_cast<cudaGraph_t>(new Graph(*captured)) : nullptr;
  return captured->valid ? cudaSuccess : failed(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  *status = cudaStreamCaptureStatusNone;
  if (stream->captured)
    *status = stream->captured->valid ? cudaStreamCaptureStatusActive
                                      : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* n) {
  if (const cudaError_t error = cudaStreamIsCapturing(handle, status)) return error;
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (id) *id = stream->captured ? stream->captured->id : 0;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(stream->captured.get());
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* n) {
  *n = reinterpret_cast<Graph*>(graph)->work.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(made, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream || stream->device != reinterpret_cast<Graph*>(graph)->device)
    return failed(cudaErrorInvalidResourceHandle);
  return enqueue(stream, [works = reinterpret_cast<Graph*>(graph)->work] {
    for (const Work& work : works) work();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  for (int device = 0; device < kDevices; ++device) {
    const std::lock_guard lock(mutex());
    finish_device(device);
  }
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}

} // extern "C"
