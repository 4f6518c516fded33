#include <ATen/Observation.h>

#include <ATen/CountBuffer.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/codec/ExactCodec.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

namespace at::formats {
namespace {

// Guards records and observers. Locked after a tally's own mutex, never before it.
c10::formats::ForkSafeMutex records_mutex;

CountLimits limits_of(const Format& f) {
  using namespace c10::formats;
  const auto value = [&f](uint64_t code) { return to_double(decode(f, code)); };
  if (f.is_table())
    return {value(f.table->max_code), value(f.table->lowest_code), f.table->smallest,
            f.table->smallest};
  const bool is_float = f.kind == Kind::Float, gradual = f.subnormals == Subnormals::Gradual;
  const double highest = value(f.max_code());
  const double lowest = !f.is_fixed()
      ? -highest
      : -std::ldexp(static_cast<double>(f.lowest_magnitude()), -int{f.frac_bits});
  const double normal = is_float && f.exp_bits > 0 ? value(uint64_t{1} << f.man_bits) : value(1);
  return {highest, lowest, is_float && !gradual ? normal : value(1), normal};
}

std::shared_ptr<Record> last(std::shared_ptr<Record> record) {
  while (record->successor) record = record->successor;
  return record;
}

// ---- a thread's bins ----

// The counts that one thread made for one record and has not yet handed over.
class Tally {
 public:
  Tally();
  ~Tally();

  template <typename T>
  void count(const std::shared_ptr<Record>& record, const T* exact, const T* rounded, int64_t n) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (record != record_) {
      flush();
      record_ = record;
    }
    for (int64_t done = 0; done < n;) {
      const int64_t m = buffer_.count(record_->limits, exact + done, rounded + done, n - done);
      if (m == 0) flush();
      done += m;
    }
  }

  void hand_over() {
    const std::lock_guard<std::mutex> lock(mutex_);
    flush();
    record_.reset();
  }

 private:
  void flush() {
    if (buffer_.is_empty()) return;
    Counts found;
    buffer_.empty(found);
    add_counts(record_, found);
  }

  std::mutex mutex_;
  std::shared_ptr<Record> record_;
  CountBuffer buffer_;
};

// The tallies of all threads. Locked before a tally's mutex.
std::mutex& tallies_mutex = *new std::mutex;
std::vector<Tally*>& tallies = *new std::vector<Tally*>;

Tally::Tally() {
  const std::lock_guard<std::mutex> lock(tallies_mutex);
  tallies.push_back(this);
}

Tally::~Tally() {
  const std::lock_guard<std::mutex> lock(tallies_mutex);
  hand_over();
  tallies.erase(std::find(tallies.begin(), tallies.end(), this));
}

Tally& tally() {
  thread_local Tally own;
  return own;
}

constexpr size_t kMaxPending = 256;

} // namespace

void Counts::add(const Counts& o) {
  elements += o.elements;
  o.flags.each(flags, [](uint64_t own, uint64_t& all) { all += own; });
  for (const auto& [exponent, bin] : o.bins) {
    CountBin& own = bins[exponent];
    own.count += bin.count;
    own.squares += bin.squares;
    own.errors += bin.errors;
  }
}

void add_counts(const std::shared_ptr<Record>& record, const Counts& counts) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  last(record)->counts.add(counts);
}

Record::Record(const Format& f) : format(f), limits(limits_of(f)) {
}

template <typename T>
void Recorder::values(const T* exact, const T* rounded, int64_t n) const {
  tally().count(record_, exact, rounded, n);
}

template <typename T>
void Recorder::codes(const T* exact, const void* codes, int64_t n) const {
  const Format& f = record_->format;
  const bool in_type = sizeof(T) == sizeof(double) || f.fits_float();
  const int64_t width = f.itemsize();
  alignas(64) T rounded[kTile];
  alignas(64) double wide[kTile], wide_rounded[kTile];
  for (int64_t first = 0; first < n; first += kTile) {
    const int64_t m = std::min(kTile, n - first);
    const char* at = static_cast<const char*>(codes) + first * width;
    if (in_type) {
      host_kernels().decode(f, at, rounded, m);
      values(exact + first, rounded, m);
    } else {
      std::copy_n(exact + first, m, wide);
      host_kernels().decode(f, at, wide_rounded, m);
      values(wide, wide_rounded, m);
    }
  }
}

template void Recorder::values(const float*, const float*, int64_t) const;
template void Recorder::values(const double*, const double*, int64_t) const;
template void Recorder::codes(const float*, const void*, int64_t) const;
template void Recorder::codes(const double*, const void*, int64_t) const;

// ---- observers ----

std::shared_ptr<Record> Observer::find_record(int layer, Pass pass, const Format& format) {
  auto& place = records_[{layer, static_cast<int>(pass)}];
  for (const auto& record : place) {
    if (record->format == format) return record;
  }
  place.push_back(std::make_shared<Record>(format));
  return place.back();
}

std::shared_ptr<Record> Observer::record(int layer, Pass pass, const Format& format) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  return find_record(layer, pass, format);
}

void Observer::settle(const Pending& p, Pass pass, int layer) {
  const auto to = find_record(layer, pass, p.record->format);
  to->counts.add(p.record->counts);
  p.record->counts = Counts();
  p.record->successor = to;
}

void Observer::settle_all() {
  for (const auto& [result, p] : pending_) settle(p, Pass::Backward, p.layer);
  pending_.clear();
}

std::shared_ptr<Record> Observer::pending(int layer, const Format& format, const void* result) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  if (pending_.size() >= kMaxPending) settle_all();
  const auto before = pending_.find(result);
  if (before != pending_.end()) settle(before->second, Pass::Backward, before->second.layer);
  auto record = std::make_shared<Record>(format);
  pending_[result] = {record, layer};
  return record;
}

void Observer::claim(const void* result, int layer) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  const auto it = pending_.find(result);
  if (it == pending_.end()) return;
  settle(it->second, Pass::Gradients, layer);
  pending_.erase(it);
}

void Observer::know_parameters(Memory memory) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  parameters_ = std::move(memory);
}

void Observer::know_states(Memory memory) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  states_ = std::move(memory);
}

static int layer_of(const Observer::Memory& known, const void* memory) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  const auto it = memory ? known.find(memory) : known.end();
  return it == known.end() ? -1 : it->second;
}

int Observer::layer_of_parameter(const void* memory) const {
  return layer_of(parameters_, memory);
}

int Observer::layer_of_state(const void* memory) const {
  return layer_of(states_, memory);
}

std::vector<Observer::Entry> Observer::entries() {
  {
    const std::lock_guard<std::mutex> lock(tallies_mutex);
    for (Tally* t : tallies) t->hand_over();
  }
  hand_over_gpu_counts();
  const std::lock_guard<std::mutex> lock(records_mutex);
  settle_all();
  std::vector<Entry> all;
  for (const auto& [place, records] : records_) {
    for (const auto& r : records) {
      if (r->counts.elements > 0)
        all.push_back({place.first, static_cast<Pass>(place.second), r->format, r->counts});
    }
  }
  return all;
}

} // namespace at::formats
