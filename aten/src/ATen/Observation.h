// What torch_dtypes.observe counts where numbers are rounded: exact values beside the numbers of
// the format that they became.
//
// A kernel that rounds asks for a recorder before its parallel loop and hands it both where it has
// them. Nobody observing, that is one load a call. Counts are integers, so neither threads nor
// their order change one.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace at::formats {

// What rounded numbers are. Forward, Backward: results of operators. Weights, Gradients: parameters
// and their gradients. Updates, States: what an optimizer writes into parameters, and all else that
// it rounds. Accumulation: the steps within dot products.
enum class Pass : uint8_t { Forward, Backward, Weights, Gradients, Updates, States, Accumulation };
inline constexpr int kPasses = 7;

// Of one exponent: exact values and their squares, and the squares of errors of that exponent, in
// units of 4^exponent / 2^22.
struct CountBin {
  uint64_t count{0}, squares{0}, errors{0};
};

struct Counts {
  uint64_t elements{0};
  CountFlags flags;
  // By float64's exponent field: 0 has zeros and its subnormal numbers, 2047 what is not finite.
  std::map<int, CountBin> bins;

  void add(const Counts& other);
};

// The counts of one format in one place.
struct Record {
  explicit Record(const Format& f);

  const Format format; // as it is named, with its own rounding mode
  const CountLimits limits;
  Counts counts;
  // Which has taken these counts over, and gets what is still to come.
  std::shared_ptr<Record> successor;
};

// What was counted elsewhere, to a record or its successor.
void add_counts(const std::shared_ptr<Record>& record, const Counts& counts);

// A record to be counted into, or nothing.
class Recorder {
 public:
  Recorder() = default;
  explicit Recorder(std::shared_ptr<Record> record) : record_(std::move(record)) {}
  explicit operator bool() const { return record_ != nullptr; }
  const std::shared_ptr<Record>& record() const { return record_; }

  // n exact values beside the codes that they were rounded to, or beside the values of those. On
  // any thread.
  template <typename T>
  void codes(const T* exact, const void* codes, int64_t n) const;
  template <typename T>
  void values(const T* exact, const T* rounded, int64_t n) const;

 private:
  std::shared_ptr<Record> record_;
};

// Everything that is counted between the beginning and the end of one observation. Layers are
// numbers of the caller's; 0 is what belongs to none.
class Observer {
 public:
  struct Entry {
    int layer;
    Pass pass;
    Format format;
    Counts counts;
  };

  std::shared_ptr<Record> record(int layer, Pass pass, const Format& format);
  // A record for one result, whose counts are the layer's backward pass's unless claim() says that
  // the result is a parameter's gradient.
  std::shared_ptr<Record> pending(int layer, const Format& format, const void* result);
  void claim(const void* result, int layer);
  // What was counted so far.
  std::vector<Entry> entries();

  // Whose memory is known, by layer: parameters, and tensors of an optimizer (their states and
  // gradients).
  using Memory = std::unordered_map<const void*, int>;
  void know_parameters(Memory memory);
  void know_states(Memory memory);
  // The layer of the parameter, or of the state, that begins there in memory, or -1.
  int layer_of_parameter(const void* memory) const;
  int layer_of_state(const void* memory) const;

 private:
  struct Pending {
    std::shared_ptr<Record> record;
    int layer;
  };
  std::shared_ptr<Record> found(int layer, Pass pass, const Format& format);
  void settle(const Pending& pending, Pass pass, int layer);
  void settle_all();

  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Record>>> records_;
  std::unordered_map<const void*, Pending> pending_;
  Memory parameters_, states_;
};

// ---- the calling thread ----

// What a thread counts into now. Set by the hooks of torch_dtypes.observe, on whatever thread they
// run.
struct ObservedThread {
  std::shared_ptr<Observer> observer;
  int forward_layer{0}, backward_layer{0};
  int pass{-1}; // of all that is rounded, or -1: by what is going on
  bool updating{false};
  // Where results of operators of which a step consists end, if anywhere, and what it updates:
  // their own results may lie elsewhere.
  const void *destination{nullptr}, *updated{nullptr};
};
ObservedThread& observed_thread();

extern std::atomic<int> observers_open;
inline bool observing() {
  return observers_open.load(std::memory_order_relaxed) != 0;
}

// Where the calling thread's roundings to a format count that are written to one place in memory
// and read from another (or nullptr).
Recorder find_recorder(const Format& named, const void* written, const void* read);
inline Recorder recorder(const Format& named, const void* written, const void* read = nullptr) {
  return observing() ? find_recorder(named, written, read) : Recorder();
}
// The same for the steps within dot products.
Recorder find_step_recorder(const Format& named);
inline Recorder step_recorder(const Format& named) {
  return observing() ? find_step_recorder(named) : Recorder();
}

// What this thread rounds in a scope is not counted: numbers and values that are only moved.
struct Unobserved {
  explicit Unobserved(bool really = true) : really_(really && observing()) {
    if (really_) std::swap(observer_, observed_thread().observer);
  }
  ~Unobserved() {
    if (really_) std::swap(observer_, observed_thread().observer);
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  bool really_;
  std::shared_ptr<Observer> observer_;
};

} // namespace at::formats
