// Tables of values in a GPU's memory.
#include <ATen/native/formats/cuda/Tables.h>

#ifdef TD_CUDA_RUNTIME
#include <map>
#include <mutex>
#include <utility>
#endif

namespace at::formats::cuda {

#ifdef TD_CUDA_RUNTIME

namespace {

using c10::formats::TableFacts;
using c10::formats::TableView;
using c10::formats::ValueTable;
using c10::formats::ViewedTable;

thread_local Status refused = 0;

// Copies n objects to new memory of the current device; returns nullptr if the runtime refuses. The
// copy is complete on return, for every stream: PyTorch's streams do not wait for the default one,
// where cudaMemcpy may still be running. It uses a stream and a capture mode of its own, so it also
// works while a graph is captured.
template <typename T>
const T* copy_to_device(const T* from, size_t n) {
  void* to = nullptr;
  cudaStream_t stream = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  Status status = cudaMalloc(&to, n * sizeof(T));
  if (status == 0) status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status == 0)
    status = cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream);
  if (status == 0) status = cudaStreamSynchronize(stream);
  if (stream) cudaStreamDestroy(stream);
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (status == 0) return static_cast<const T*>(to);
  refused = status;
  cudaGetLastError(); // the caller has the status; the next launch must not get it
  return nullptr;
}

const TableFacts* copy_to_device(const ValueTable& t) {
  ViewedTable there = t;
  TableView& v = there.view;
  const auto n = static_cast<size_t>(v.size);
  v.by_code = copy_to_device(v.by_code, t.by_code.size());
  v.values = copy_to_device(v.values, n);
  v.codes = copy_to_device(v.codes, n);
  v.lower_is_odd = copy_to_device(v.lower_is_odd, n - 1);
  v.boundaries = copy_to_device(v.boundaries, n - 1);
  return refused == 0 ? copy_to_device(&there, 1) : nullptr;
}

} // namespace

Format on_device(const Format& format) {
  if (!format.is_table()) return format;
  static std::mutex mutex;
  // Tables are never freed, so their copies are not either.
  static auto& copies = *new std::map<std::pair<int, const TableFacts*>, const TableFacts*>;
  Format there = format;
  there.table = nullptr;
  int device = 0;
  // An earlier refusal stays until the launch.
  if (const Status status = cudaGetDevice(&device)) refused = status;
  if (refused != 0) return there;
  const std::lock_guard<std::mutex> lock(mutex);
  const TableFacts*& copy = copies[{device, format.table}];
  if (!copy) copy = copy_to_device(c10::formats::table_of(format));
  there.table = copy;
  return there;
}

Status take_refused() {
  return std::exchange(refused, 0);
}

#else

Format on_device(const Format& format) {
  return format;
}

#endif

} // namespace at::formats::cuda
