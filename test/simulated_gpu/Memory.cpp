// Memory of devices: pages of this process that only kernels and copies can open.
#include "Launch.h"
#include "Runtime.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace simulated_gpu {
namespace {

// Memory is opened and closed by chunks; allocations begin at one.
constexpr size_t kChunk = size_t{2} << 20;
constexpr size_t kChunks = kDevices * (kMemory / kChunk);
constexpr unsigned char kPoison = 0xa5;

// The address range of all devices' memory, reserved when the library is loaded.
char* const range = [] {
  void* const at = mmap(nullptr, kChunks * kChunk, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    std::perror("simulated GPU: mmap");
    std::abort();
  }
  return static_cast<char*>(at);
}();

std::atomic<int> kernels{0}; // running now
std::array<std::atomic<bool>, kChunks> allocated, opened;
std::map<const char*, Place>& allocations() {
  static auto& found = *new std::map<const char*, Place>;
  return found;
}
std::map<const char*, Place>& pinned() {
  static auto& found = *new std::map<const char*, Place>;
  return found;
}

size_t chunk_of(const void* pointer) {
  return (static_cast<const char*>(pointer) - range) / kChunk;
}
bool in_range(const void* pointer) {
  return pointer >= range && pointer < range + kChunks * kChunk;
}
void protect(size_t chunk, int how) {
  mprotect(range + chunk * kChunk, kChunk, how);
}

// ---- access to a closed page: a kernel gets in, other code reaches the process's handler of
// SIGSEGV ----

struct sigaction theirs{};

void on_fault(int number, siginfo_t* info, void* context) {
  if (in_range(info->si_addr)) {
    const size_t chunk = chunk_of(info->si_addr);
    if (kernels.load() > 0 && allocated[chunk].load()) {
      opened[chunk] = true;
      protect(chunk, PROT_READ | PROT_WRITE);
      return;
    }
    static constexpr char host[] = "simulated GPU: the host followed a pointer to a GPU's memory\n";
    static constexpr char kernel[] = "simulated GPU: a kernel left the memory that was allocated\n";
    const bool on_host = kernels.load() == 0;
    [[maybe_unused]] const auto written = write(STDERR_FILENO, on_host ? host : kernel,
                                                on_host ? sizeof(host) - 1 : sizeof(kernel) - 1);
  }
  if (theirs.sa_flags & SA_SIGINFO && theirs.sa_sigaction)
    return theirs.sa_sigaction(number, info, context);
  if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN)
    return theirs.sa_handler(number);
  signal(SIGSEGV, SIG_DFL); // retries the instruction, which ends the process
  if (info->si_code <= 0) raise(SIGSEGV); // a signal sent by a process has no instruction to retry
}

using SigAction = int (*)(int, const struct sigaction*, struct sigaction*);
SigAction real_sigaction() {
  static const auto found = reinterpret_cast<SigAction>(dlsym(RTLD_NEXT, "sigaction"));
  return found;
}

[[maybe_unused]] const bool installed = [] {
  struct sigaction ours{};
  ours.sa_sigaction = &on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  return real_sigaction()(SIGSEGV, &ours, &theirs) == 0;
}();

Place found_in(const std::map<const char*, Place>& places, const void* pointer) {
  auto next = places.upper_bound(static_cast<const char*>(pointer));
  if (next == places.begin()) return {};
  const Place& place = std::prev(next)->second;
  return pointer < place.begin + place.bytes ? place : Place{};
}

// Returns the first of n adjacent free chunks of a device, or kChunks for none.
size_t free_chunks(int device, size_t n) {
  const size_t first = device * (kMemory / kChunk), end = first + kMemory / kChunk;
  for (size_t i = first, length = 0; i < end; ++i) {
    length = allocated[i] ? 0 : length + 1;
    if (length == n) return i + 1 - n;
  }
  return kChunks;
}

cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t handle,
                 bool waits) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (n == 0) return cudaSuccess;
  const Place target = place_of(to), source = place_of(from);
  const bool to_device = target.device >= 0, from_device = source.device >= 0;
  const bool fits = kind == cudaMemcpyDefault ||
      (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
       from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
  if (!fits || !within(target, to, n) || !within(source, from, n))
    return failed(cudaErrorInvalidValue);
  const auto move = [=] { std::memmove(to, from, n); };
  if (waits) {
    if (capture_forbids() || stream->captured) return failed(cudaErrorStreamCaptureUnsupported);
    finish(*stream);
    const OpenMemory open;
    move();
    return cudaSuccess;
  }
  if (stream->captured) return enqueue(stream, move);
  // Staged, so that the host's memory can be used again at once.
  if (to_device && !from_device && !source.pinned) {
    const auto bytes = std::make_shared<std::vector<char>>(static_cast<const char*>(from),
                                                           static_cast<const char*>(from) + n);
    return enqueue(stream, [=] { std::memcpy(to, bytes->data(), n); });
  }
  const cudaError_t error = enqueue(stream, move);
  if (error == cudaSuccess && ((!to_device && !target.pinned) || (!to_device && !from_device)))
    finish(*stream);
  return error;
}

cudaError_t set(void* to, int value, size_t n, cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  const auto stream = stream_of(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  const Place target = place_of(to);
  if (n > 0 && (target.device < 0 || !within(target, to, n))) return failed(cudaErrorInvalidValue);
  return enqueue(stream, [=] { std::memset(to, value, n); });
}

} // namespace

Place place_of(const void* pointer) {
  return found_in(in_range(pointer) ? allocations() : pinned(), pointer);
}

bool within(const Place& place, const void* pointer, size_t bytes) {
  return !place.begin || static_cast<const char*>(pointer) + bytes <= place.begin + place.bytes;
}

} // namespace simulated_gpu

using namespace simulated_gpu;

extern "C" {

// A handler for SIGSEGV (such as Python's faulthandler) gets the faults outside kernels.
int sigaction(int number, const struct sigaction* now, struct sigaction* before) noexcept {
  if (number != SIGSEGV) return real_sigaction()(number, now, before);
  if (before) *before = theirs;
  if (now) theirs = *now;
  return 0;
}

void simulatedGpuOpenMemory() {
  ++kernels;
}

void simulatedGpuCloseMemory() {
  if (--kernels > 0) return;
  for (size_t i = 0; i < kChunks; ++i) {
    if (opened[i].exchange(false)) protect(i, PROT_NONE);
  }
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const std::lock_guard lock(mutex());
  *pointer = nullptr;
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  const int device = current_device();
  const size_t n = (bytes + kChunk - 1) / kChunk, first = free_chunks(device, n);
  if (first == kChunks) return failed(cudaErrorMemoryAllocation);
  char* const begin = range + first * kChunk;
  for (size_t i = first; i < first + n; ++i) allocated[i] = true;
  allocations()[begin] = {.device = device, .begin = begin, .bytes = bytes};
  // Fills new memory with poison. A graph's pool holds nothing until it runs, and its recording
  // reads some of it.
  const OpenMemory open;
  if (bytes <= size_t{64} << 20) std::memset(begin, capturing() ? 0 : kPoison, bytes);
  *pointer = begin;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(mutex());
  if (!pointer) return cudaSuccess;
  const auto found = allocations().find(static_cast<const char*>(pointer));
  if (found == allocations().end()) return failed(cudaErrorInvalidValue);
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  for (int device = 0; device < kDevices; ++device) finish_device(device);
  const size_t first = chunk_of(pointer), n = (found->second.bytes + kChunk - 1) / kChunk;
  madvise(pointer, n * kChunk, MADV_DONTNEED);
  for (size_t i = first; i < first + n; ++i) {
    protect(i, PROT_NONE);
    allocated[i] = opened[i] = false;
  }
  allocations().erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(mutex());
  const size_t first = current_device() * (kMemory / kChunk);
  size_t left = 0;
  for (size_t i = first; i < first + kMemory / kChunk; ++i) left += allocated[i] ? 0 : kChunk;
  *free = left;
  *total = kMemory;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  const std::lock_guard lock(mutex());
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*pointer) return failed(cudaErrorMemoryAllocation);
  const auto* begin = static_cast<const char*>(*pointer);
  pinned()[begin] = {.pinned = true, .begin = begin, .bytes = bytes};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(mutex());
  if (pointer && pinned().erase(static_cast<const char*>(pointer)) == 0)
    return failed(cudaErrorInvalidValue);
  for (int device = 0; device < kDevices; ++device) finish_device(device);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  const std::lock_guard lock(mutex());
  const auto* begin = static_cast<const char*>(pointer);
  if (place_of(pointer).pinned) return failed(cudaErrorHostMemoryAlreadyRegistered);
  pinned()[begin] = {.pinned = true, .begin = begin, .bytes = bytes};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  const std::lock_guard lock(mutex());
  return pinned().erase(static_cast<const char*>(pointer)) == 1
      ? cudaSuccess
      : failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock(mutex());
  const Place place = place_of(pointer);
  *attributes = {};
  attributes->device = place.device;
  attributes->type = place.pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  if (place.device >= 0) attributes->type = cudaMemoryTypeDevice;
  if (place.device >= 0) attributes->devicePointer = const_cast<void*>(pointer);
  if (place.device < 0) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  return copy(to, from, n, kind, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, n, kind, stream, false);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n,
                                cudaStream_t stream) {
  return copy(to, from, n, cudaMemcpyDeviceToDevice, stream, false);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t stream) {
  return set(to, value, n, stream);
}

cudaError_t cudaMemset(void* to, int value, size_t n) {
  return set(to, value, n, nullptr);
}

} // extern "C"
