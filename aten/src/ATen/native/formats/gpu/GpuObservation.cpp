#include <ATen/native/formats/gpu/GpuObservation.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/zero_ops.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace at::formats {
namespace {

constexpr int64_t kWords = sizeof(cuda::CountTable) / sizeof(int64_t);

Counts counts_of(const cuda::CountTable& table) {
  Counts found;
  found.flags = table.flags;
  for (int b = 0; b < kCountBins; ++b) {
    if ((table.counts[b] | table.squares[b] | table.errors[b]) == 0) continue;
    found.bins[b] = {table.counts[b], table.squares[b], table.errors[b]};
    found.elements += table.counts[b];
  }
  return found;
}

// Also called at the end of an observation, when nobody observes any more.
void expect_no_capture(c10::Device device) {
  TORCH_CHECK_NOT_IMPLEMENTED(!is_captured(device),
                              "observe: expected no CUDA graph to be captured in a block that is "
                              "observed, but got one: its runs would not be counted. ",
                              "Capture it before or after, or observe eager calls.");
}

// One device's tables, for a limited number of records. A further record waits for the device and
// takes its counts over; all other roundings wait for nothing.
class DeviceCounts {
 public:
  explicit DeviceCounts(c10::Device device) : device_(device) {}

  // Makes room for these records. Afterwards nothing is handed over before they are counted into.
  void make_room(std::initializer_list<const Recorder*> recorders) {
    expect_no_capture(device_);
    std::vector<std::shared_ptr<Record>> more;
    for (const Recorder* r : recorders) {
      if (*r && !knows(records_, r->record()) && !knows(more, r->record()))
        more.push_back(r->record());
    }
    if (records_.size() + more.size() > kRecords) {
      hand_over();
      return make_room(recorders);
    }
    if (!tables_.defined()) {
      at::Tensor made = at::empty({kRecords, cuda::kCountCopies, kWords},
                                  at::TensorOptions().dtype(c10::ScalarType::Long).device(device_));
      clear(made, Gpu(device_, "observe"));
      tables_ = std::move(made);
    }
    // Added last, so that an error before leaves no new records.
    records_.insert(records_.end(), more.begin(), more.end());
  }

  cuda::CountTable* tables(const std::shared_ptr<Record>& record) const {
    const auto place = std::find(records_.begin(), records_.end(), record) - records_.begin();
    return static_cast<cuda::CountTable*>(tables_.mutable_data_ptr()) + place * cuda::kCountCopies;
  }

  void hand_over() {
    if (records_.empty()) return;
    expect_no_capture(device_);
    const Gpu gpu(device_, "observe");
    gpu.synchronize(); // waits for all streams
    const at::Tensor used = tables_.narrow(0, 0, static_cast<int64_t>(records_.size()));
    const at::Tensor sums = at::_ops::sum_dim_IntList::call(used, at::IntArrayRef{1}, false, {});
    const at::Tensor found =
        at::_ops::_to_copy::call(sums, {}, {}, c10::Device(c10::kCPU), {}, false, {});
    const auto* tables = static_cast<const cuda::CountTable*>(found.const_data_ptr());
    for (size_t i = 0; i < records_.size(); ++i) add_counts(records_[i], counts_of(tables[i]));
    records_.clear();
    clear(used, gpu);
  }

 private:
  static constexpr size_t kRecords = 64;

  static bool knows(const std::vector<std::shared_ptr<Record>>& records,
                    const std::shared_ptr<Record>& record) {
    return std::find(records.begin(), records.end(), record) != records.end();
  }

  static void clear(at::Tensor tables, const Gpu& gpu) {
    at::_ops::zero_::call(tables);
    gpu.synchronize();
  }

  c10::Device device_;
  at::Tensor tables_; // [record, copy, word]
  std::vector<std::shared_ptr<Record>> records_;
};

std::mutex& observers_mutex = *new std::mutex;
// Never freed: the CUDA runtime may end before this library.
auto& devices = *new std::map<c10::DeviceIndex, DeviceCounts>;

void count(const Recorder& seen, cuda::Counting counting, c10::Device device) {
  const GpuCounters counters(device, {&seen});
  const cuda::StepCounts counts = counters.of(seen);
  counting.limits = counts.limits;
  counting.tables = counts.tables;
  const Gpu gpu(device, "observe");
  gpu.check(gpu->count(counting, gpu.stream()));
}

bool is_wide(const at::Tensor& exact) {
  return exact.scalar_type() == c10::ScalarType::Double;
}

} // namespace

GpuCounters::GpuCounters(c10::Device device, std::initializer_list<const Recorder*> recorders)
    : device_(device) {
  if (std::none_of(recorders.begin(), recorders.end(),
                   [](const Recorder* r) { return static_cast<bool>(*r); }))
    return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  const HiddenFromModes hidden;
  lock_ = std::unique_lock<std::mutex>(observers_mutex);
  devices.try_emplace(device.index(), device).first->second.make_room(recorders);
}

cuda::StepCounts GpuCounters::of(const Recorder& seen) const {
  if (!seen) return {};
  return {seen.record()->limits, devices.at(device_.index()).tables(seen.record())};
}

void count_codes_on_gpu(const Recorder& seen, const at::Tensor& exact, const void* codes,
                        const cuda::Layout& layout) {
  if (exact.numel() == 0) return;
  const HiddenFromModes hidden;
  // Integers of 2^53 and more are counted as the float64 next to them.
  const at::Tensor values = c10::isFloatingType(exact.scalar_type())
      ? exact
      : at::_ops::_to_copy::call(exact, c10::ScalarType::Double, {}, {}, {}, false, {});
  const Format& format = seen.record()->format;
  count(seen,
        {.exact = values.const_data_ptr(),
         .rounded = codes,
         .wide = is_wide(values),
         .format = &format,
         .n = values.numel(),
         .layout = layout},
        values.device());
}

void count_values_on_gpu(const Recorder& seen, const at::Tensor& exact, const at::Tensor& rounded) {
  if (exact.numel() == 0) return;
  count(seen,
        {.exact = exact.const_data_ptr(),
         .rounded = rounded.const_data_ptr(),
         .wide = is_wide(exact),
         .n = exact.numel()},
        exact.device());
}

void hand_over_gpu_counts() {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const HiddenFromModes hidden;
  const std::lock_guard<std::mutex> lock(observers_mutex);
  for (auto& [index, counts] : devices) counts.hand_over();
  if (!observing()) devices.clear();
}

} // namespace at::formats
