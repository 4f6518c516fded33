// Counts for torch_dtypes.observe, made where numbers are rounded: exact values are compared with
// the rounded ones.
//
// A kernel that rounds asks for a recorder before its parallel loop, and hands it both. If nobody
// observes, that costs one load a call. Counts are integers, so the number and the order of threads
// change none.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace at::formats {

// The role of rounded numbers. Forward, Backward: results of operators. Weights, Gradients:
// parameters and their gradients. Updates, States: parameters that an optimizer writes, and all
// else that it rounds. Accumulation: the steps within dot products.
enum class Pass : uint8_t { Forward, Backward, Weights, Gradients, Updates, States, Accumulation };
inline constexpr int kPasses = 7;

// Sums over numbers of one exponent: their count, their squares, and the squares of errors of that
// exponent, in units of 4^exponent / 2^22.
struct CountBin {
  uint64_t count{0}, squares{0}, errors{0};
};

struct Counts {
  uint64_t elements{0};
  CountFlags flags;
  // By float64's exponent field: bin 0 has zeros and float64's subnormals, bin 2047 infinities and
  // NaN.
  std::map<int, CountBin> bins;

  void add(const Counts& other);
};

// The counts of one format in one layer and pass.
struct Record {
  explicit Record(const Format& f);

  const Format format; // as the dtype names it, with its own rounding mode
  const CountLimits limits;
  Counts counts;
  // The record that has taken these counts over, and gets later ones.
  std::shared_ptr<Record> successor;
};

// Adds counts made elsewhere to a record or its successor.
void add_counts(const std::shared_ptr<Record>& record, const Counts& counts);

// Counts into a record, or does nothing if it has none.
class Recorder {
 public:
  Recorder() = default;
  explicit Recorder(std::shared_ptr<Record> record) : record_(std::move(record)) {}
  explicit operator bool() const { return record_ != nullptr; }
  const std::shared_ptr<Record>& record() const { return record_; }

  // Count n exact values and the codes, or the values, that they were rounded to. Any thread may
  // call these.
  template <typename T>
  void codes(const T* exact, const void* codes, int64_t n) const;
  template <typename T>
  void values(const T* exact, const T* rounded, int64_t n) const;

 private:
  std::shared_ptr<Record> record_;
};

// Everything counted between the beginning and the end of one observation. The caller numbers the
// layers; 0 is for what belongs to none.
class Observer {
 public:
  struct Entry {
    int layer;
    Pass pass;
    Format format;
    Counts counts;
  };

  std::shared_ptr<Record> record(int layer, Pass pass, const Format& format);
  // A record for one result. Its counts go to the layer's backward pass, unless claim() says that
  // the result is a parameter's gradient.
  std::shared_ptr<Record> pending(int layer, const Format& format, const void* result);
  void claim(const void* result, int layer);
  // The counts so far.
  std::vector<Entry> entries();

  // Maps known memory to layers: parameters, and an optimizer's tensors (states and gradients).
  using Memory = std::unordered_map<const void*, int>;
  void know_parameters(Memory memory);
  void know_states(Memory memory);
  // The layer of the parameter, or of the state, whose memory begins there; -1 if there is none.
  int layer_of_parameter(const void* memory) const;
  int layer_of_state(const void* memory) const;

 private:
  struct Pending {
    std::shared_ptr<Record> record;
    int layer;
  };
  std::shared_ptr<Record> find_record(int layer, Pass pass, const Format& format);
  void settle(const Pending& pending, Pass pass, int layer);
  void settle_all();

  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Record>>> records_;
  std::unordered_map<const void*, Pending> pending_;
  Memory parameters_, states_;
};

// ---- the calling thread ----

// Where a thread counts now. The hooks of torch_dtypes.observe set it, on whatever thread they run.
struct ObservedThread {
  std::shared_ptr<Observer> observer;
  int forward_layer{0}, backward_layer{0};
  int pass{-1}; // the pass of all that is rounded; -1: it depends on what runs
  bool updating{false};
  // Of an optimizer step made of several operators: where its result ends up, and which tensor it
  // updates. The operators' own results may be elsewhere in memory.
  const void *destination{nullptr}, *updated{nullptr};
};
ObservedThread& observed_thread();

extern std::atomic<int> observers_open;
inline bool observing() {
  return observers_open.load(std::memory_order_relaxed) != 0;
}

// The recorder for the calling thread's roundings to a format, by the memory that is written and
// the memory that is read (or nullptr).
Recorder find_recorder(const Format& named, const void* written, const void* read);
inline Recorder recorder(const Format& named, const void* written, const void* read = nullptr) {
  return observing() ? find_recorder(named, written, read) : Recorder();
}
// The recorder for steps within dot products.
Recorder find_step_recorder(const Format& named);
inline Recorder step_recorder(const Format& named) {
  return observing() ? find_step_recorder(named) : Recorder();
}

// For one scope: this thread's roundings are not counted, because values are only moved.
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
