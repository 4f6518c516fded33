// Sums rounded at every step in other orders than one running sum: as trees, by halves, and in
// lanes.
#pragma once
#include <ATen/native/formats/sums/StepSums.h>

#include <memory>
#include <vector>

namespace at::formats {

// Up to kLanes sums side by side, as in SteppedSums.
template <typename T>
class OrderedSums {
 public:
  OrderedSums(const CpuKernels& kernels, const StepFormats& formats, const Accumulation& policy,
              int64_t k)
      : steps_(kernels, formats, policy),
        lanes_(policy.order == Accumulation::Order::Lanes
                   ? std::min(policy.lanes, std::max<int64_t>(k, 1))
                   : 0),
        joins_(lanes_ ? lanes_ : k) {
    const auto parts = static_cast<int64_t>(joins_.size());
    for (int64_t i = 0; i < parts; ++i)
      joins_[i] = c10::formats::joins_behind(policy.order, i, parts);
  }

  // The terms: value(i, out) writes a product of a row; there(i) says which lanes have it (nullptr:
  // all). running(i, steps) adds term i to a running sum.
  template <typename Value, typename There, typename Running>
  void sum(const T* start, int64_t k, int64_t n, int64_t first, int64_t all, Value value,
           There there, Running running, T* out) {
    depth_ = 0;
    steps_.begin(nullptr, n, first, all);
    std::fill_n(rounded_, n, uint8_t{0});
    if (lanes_) {
      for (int64_t lane = 0; lane < lanes_; ++lane) {
        steps_.begin(nullptr, n, first, all, steps_.step());
        for (int64_t i = lane; i < k; i += lanes_) running(i, steps_);
        Part& part = push();
        steps_.finish(part.values);
        std::fill_n(part.there, n, uint8_t{1});
        std::fill_n(rounded_, n, uint8_t{1});
        join(n, joins_[lane]);
      }
    } else {
      for (int64_t i = 0; i < k; ++i) {
        const uint8_t* present = there(i);
        Part& part = push();
        value(i, steps_, part.values);
        for (int64_t j = 0; j < n; ++j) part.there[j] = !present || present[j];
        join(n, joins_[i]);
      }
    }
    finish(start, n, out);
  }

  RandomWords next_words() { return steps_.next_words(); }

 private:
  struct Part {
    alignas(64) T values[kLanes];
    uint8_t there[kLanes];
  };

  Part& push() {
    if (depth_ == static_cast<int64_t>(parts_.size())) parts_.push_back(std::make_unique<Part>());
    return *parts_[depth_++];
  }

  void join(int64_t n, int times) {
    for (; times > 0; --times) {
      Part &a = *parts_[depth_ - 2], &b = *parts_[depth_ - 1];
      steps_.join(a.values, b.values, next_);
      for (int64_t j = 0; j < n; ++j) {
        const bool both = a.there[j] && b.there[j];
        const T one = a.there[j] ? a.values[j] : b.values[j];
        a.values[j] = both ? next_[j] : one;
        rounded_[j] |= both;
        a.there[j] |= b.there[j];
      }
      --depth_;
    }
  }

  // A single unrounded term is put into the accumulator as a running sum's first term is; a word is
  // used up in either case. The bias comes last.
  void finish(const T* start, int64_t n, T* out) {
    std::fill_n(out, n, T{0});
    if (depth_ > 0) {
      const Part& total = *parts_[0];
      for (int64_t j = 0; j < n; ++j) out[j] = total.there[j] ? total.values[j] : T{0};
      if (std::all_of(rounded_, rounded_ + n, [](uint8_t r) { return r != 0; })) {
        steps_.next_words();
      } else {
        std::fill_n(held_, n, T{0});
        steps_.join(held_, out, next_);
        for (int64_t j = 0; j < n; ++j) out[j] = rounded_[j] ? out[j] : next_[j];
      }
    }
    if (!start) return;
    std::copy_n(start, n, held_);
    steps_.hold(held_);
    if (depth_ == 0) {
      std::copy_n(held_, n, out);
      return;
    }
    steps_.join(held_, out, next_);
    for (int64_t j = 0; j < n; ++j) out[j] = parts_[0]->there[j] ? next_[j] : held_[j];
  }

  SteppedSums<T> steps_;
  int64_t lanes_, depth_{0};
  std::vector<int> joins_;
  std::vector<std::unique_ptr<Part>> parts_;
  uint8_t rounded_[kLanes];
  alignas(64) T next_[kLanes], held_[kLanes];
};

} // namespace at::formats
