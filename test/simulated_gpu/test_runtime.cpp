// The simulated runtime by itself: work is done when a caller waits and not before, in the order of
// streams and events. Operations that a GPU would not allow raise errors. It is linked to the
// runtime, and run by test/tools/test_simulated_gpu.py.
#include "Launch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)
#define OK(call) EXPECT((call) == cudaSuccess)

namespace {

constexpr size_t kBytes = 4 * sizeof(int);

int* on_device() {
  void* memory = nullptr;
  OK(cudaMalloc(&memory, kBytes));
  return static_cast<int*>(memory);
}

int first_of(const int* memory) {
  int value = 0;
  OK(cudaMemcpy(&value, memory, sizeof(value), cudaMemcpyDeviceToHost));
  return value;
}

void launch_store(cudaStream_t stream, int* at, int value) {
  OK(simulated_gpu::launch(stream, "", [at, value] { *at = value; }));
}

cudaStream_t new_stream() {
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void test_streams() {
  int* const memory = on_device();
  EXPECT(static_cast<unsigned>(first_of(memory)) == 0xa5a5a5a5u);
  const cudaStream_t stream = new_stream();
  launch_store(stream, memory, 1);
  EXPECT(first_of(memory) != 1); // there was no wait
  OK(cudaStreamSynchronize(stream));
  EXPECT(first_of(memory) == 1);

  void* pinned = nullptr;
  OK(cudaHostAlloc(&pinned, kBytes, 0));
  int pageable[4] = {3}; // copied at the call; pinned memory is read when the copy runs
  std::memset(pinned, 0, kBytes);
  OK(cudaMemcpyAsync(memory, pageable, kBytes, cudaMemcpyHostToDevice, stream));
  pageable[0] = 4;
  OK(cudaStreamSynchronize(stream));
  EXPECT(first_of(memory) == 3);
  OK(cudaMemcpyAsync(memory, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  *static_cast<int*>(pinned) = 5;
  OK(cudaStreamSynchronize(stream));
  EXPECT(first_of(memory) == 5);
  EXPECT(cudaMemcpyAsync(pinned, pageable, kBytes, cudaMemcpyHostToDevice, stream) ==
         cudaErrorInvalidValue);
  EXPECT(cudaMemcpyAsync(memory, pageable, kBytes << 30, cudaMemcpyHostToDevice, stream) ==
         cudaErrorInvalidValue);
  OK(cudaFreeHost(pinned));
  OK(cudaFree(memory));
}

void test_events() {
  int* const memory = on_device();
  const cudaStream_t first = new_stream(), second = new_stream();
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  launch_store(first, memory, 1);
  OK(cudaEventRecord(event, first));
  launch_store(first, memory, 2);
  OK(cudaStreamWaitEvent(second, event, 0));
  OK(simulated_gpu::launch(second, "", [memory] { *memory += 10; }));
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  OK(cudaStreamSynchronize(second)); // the first stream's work before the event
  EXPECT(first_of(memory) == 11);
  OK(cudaStreamSynchronize(first));
  EXPECT(first_of(memory) == 2);
  OK(cudaFree(memory));
}

void test_graphs() {
  int* const memory = on_device();
  const cudaStream_t stream = new_stream(), side = new_stream();
  launch_store(stream, memory, 0);
  OK(cudaStreamSynchronize(stream));
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(simulated_gpu::launch(stream, "", [memory] { *memory += 1; }));
  OK(cudaEventRecord(event, stream));
  OK(cudaStreamWaitEvent(side, event, 0));
  OK(simulated_gpu::launch(side, "", [memory] { *memory *= 2; }));
  void* refused = nullptr;
  EXPECT(cudaMalloc(&refused, kBytes) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph;
  OK(cudaStreamEndCapture(stream, &graph));
  EXPECT(first_of(memory) == 0);
  cudaGraphExec_t runs;
  OK(cudaGraphInstantiate(&runs, graph, 0));
  OK(cudaGraphLaunch(runs, stream));
  OK(cudaGraphLaunch(runs, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(first_of(memory) == 6);

  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  OK(cudaFree(memory));
}

void test_devices() {
  const cudaStream_t stream = new_stream();
  OK(cudaSetDevice(1));
  EXPECT(simulated_gpu::launch(stream, "", [] {}) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, total + 1) == cudaErrorMemoryAllocation);
  OK(cudaSetDevice(0));
}

// Expects a child process to end with SIGSEGV, where `touch` follows the pointer on the host, or in
// a kernel past the end of memory.
template <typename Touch>
void expect_fault(const Touch& touch) {
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    touch();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

void test_memory() {
  int* const memory = on_device();
  expect_fault([memory] { *memory = 1; });
  launch_store(nullptr, memory, 1); // later accesses from the host are refused
  OK(cudaDeviceSynchronize());
  expect_fault([memory] { *memory = 1; });
  expect_fault([memory] {
    launch_store(nullptr, memory + (size_t{1} << 28), 1);
    cudaDeviceSynchronize();
  });
  OK(cudaFree(memory));
}

} // namespace

int main() {
  test_streams();
  test_events();
  test_graphs();
  test_devices();
  test_memory();
}
