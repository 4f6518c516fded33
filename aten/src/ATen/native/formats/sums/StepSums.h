// Sums rounded at every step: the formats of the steps, and a block of sums computed side by side.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/FormatRounding.h>
#include <ATen/Observation.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/formats/codec/FastBinary32.h>
#include <c10/formats/sums/ZeroSums.h>

#include <algorithm>
#include <cmath>

namespace at::formats {

constexpr int64_t kLanes = 256; // dot products computed side by side

inline Format step_format(const FormatEntry& own, const FormatEntry* chosen,
                          const Accumulation& policy) {
  Format f = rounding_format(chosen ? *chosen : own);
  if (policy.rounding) f.rounding = *policy.rounding;
  return f;
}

// Whether the accumulator is float32's own: one running sum of float32 numbers, as machines add
// them up.
inline bool sums_in_binary32(const FormatEntry& own, const Accumulation& policy) {
  const Format sum = step_format(own, policy.accumulator, policy);
  return policy.kind == Accumulation::Kind::Steps &&
      policy.order == Accumulation::Order::Sequential && !policy.fused && !policy.kahan &&
      c10::formats::is_binary32(sum) && sum.rounding == Rounding::NearestEven && !observing();
}

// The formats that one call rounds to, and a seed if any of them needs one. To be made before a
// parallel loop, because rounding is a setting of the calling thread that worker threads lack.
struct StepFormats {
  Format product, sum, outer, result; // outer: for sums of chunks, if the policy names it
  bool chunks_in_float; // the chunks' sums are added in float32, whatever type the steps use
  Format left, right; // of the operands
  Seed seed;
  // seen: counts results; set where their destination is known
  Recorder seen_products, seen_sums, seen_outer, seen;

  StepFormats(const FormatEntry& entry, const Accumulation& policy, c10::Device device)
      : product(step_format(entry, policy.product, policy)),
        sum(step_format(entry, policy.accumulator, policy)),
        outer(step_format(entry, policy.outer, policy)),
        result(rounding_format(entry)),
        chunks_in_float(entry.compute == c10::ScalarType::Float),
        left(entry.format),
        right(entry.format),
        seed(any_stochastic() ? next_seed({}, device) : Seed()),
        seen_products(step_recorder(product)),
        seen_sums(step_recorder(sum)),
        seen_outer(policy.outer ? step_recorder(outer) : Recorder()) {}

 private:
  bool any_stochastic() const {
    using c10::formats::is_stochastic;
    return is_stochastic(product.rounding) || is_stochastic(sum.rounding) ||
        is_stochastic(outer.rounding) || is_stochastic(result.rounding);
  }
};

// Divides sums and encodes them. They are no longer needed afterwards.
template <typename T>
void encode_result(const CpuKernels& kernels, const Format& f, T* sums, int64_t divisor,
                   char* codes, int64_t n, const RandomWords& words, const Recorder& seen) {
  if (divisor != 1) {
    T divisors[kLanes];
    std::fill_n(divisors, n, static_cast<T>(divisor));
    kernels.binary(BinaryOp::Div, sums, divisors, sums, n);
  }
  kernels.encode(f, sums, codes, n, words);
  if (seen) seen.codes(sums, codes, n);
}

// Up to kLanes sums in one format; each call adds one product to each.
template <typename T>
class SteppedSums {
 public:
  SteppedSums(const CpuKernels& kernels, const StepFormats& formats, const Accumulation& policy)
      : kernels_(kernels),
        formats_(formats),
        policy_(policy),
        machine_sums_(std::is_same_v<T, float> && c10::formats::is_binary32(formats.sum)) {}

  // first: the index of the first lane among all dot products, and `all` their number: stochastic
  // modes number their words by both. step: the number of words that each lane has drawn already.
  void begin(const T* start, int64_t n, int64_t first, int64_t all, int64_t step = 0) {
    n_ = n;
    step_ = step;
    first_ = first;
    all_ = all;
    std::fill_n(taken_, n, 0);
    std::fill_n(error_, n, T{0});
    std::fill_n(wide_, n, T{0});
    std::fill_n(acc_, n, T{0});
    if (!start) return;
    std::copy_n(start, n, chunked() ? wide_ : acc_);
    if (machine_sums_) ++step_;
    else if (!chunked() && !policy_.instructions) round(formats_.sum, acc_, formats_.seen_sums);
    if (chunked() && policy_.outer) round(formats_.outer, wide_, formats_.seen_outer);
  }

  // present: the lanes that have this term, or nullptr for all.
  void add_product(T a, const T* b, const uint8_t* present) {
    keep(present);
    counted_ = present;
    if (policy_.fused) {
      std::fill_n(factor_, n_, a);
      kernels_.ternary(TernaryOp::Fma, factor_, b, acc_, T{1}, next_, n_);
      sign_zero_sums(formats_.sum.rounding, next_, n_, [&](int64_t i) {
        return std::signbit(a) == std::signbit(b[i]) && !std::signbit(acc_[i]);
      });
      round(formats_.sum, next_, formats_.seen_sums);
      std::copy_n(next_, n_, acc_);
    } else {
      product(a, b, term_);
      add_term();
    }
    after_term(present);
  }

  void add(const T* b) {
    std::copy_n(b, n_, term_);
    add_term();
    after_term(nullptr);
  }

  void finish(T* out) {
    // A chunk without terms does not count: its 0 would turn a bias of -0 into +0.
    if (chunked() && policy_.outer) {
      sum_of(BinaryOp::Add, wide_, acc_, next_, formats_.outer, formats_.seen_outer);
      for (int64_t i = 0; i < n_; ++i) out[i] = taken_[i] > 0 ? next_[i] : wide_[i];
      return;
    }
    if (!chunked()) {
      std::copy_n(acc_, n_, out);
      return;
    }
    for (int64_t i = 0; i < n_; ++i) out[i] = taken_[i] > 0 ? joined(wide_[i], acc_[i]) : wide_[i];
  }
  // Random words for one more rounding of the sums.
  RandomWords next_words() {
    return {formats_.seed, static_cast<uint64_t>(step_++ * all_ + first_)};
  }
  int64_t step() const { return step_; }

  // For other orders than one running sum: a product alone; the sum of two sums, written elsewhere;
  // a number as the accumulator holds it.
  void product(T a, const T* b, T* out) {
    if (policy_.exact_product) { // T has it exactly, or the call was refused
      for (int64_t i = 0; i < n_; ++i) out[i] = a * b[i];
      return;
    }
    std::fill_n(factor_, n_, a);
    kernels_.binary(BinaryOp::Mul, factor_, b, out, n_);
    round(formats_.product, out, formats_.seen_products);
  }
  void join(const T* a, const T* b, T* out) { sum_of(BinaryOp::Add, a, b, out); }
  void hold(T* x) { round(formats_.sum, x, formats_.seen_sums); }

 private:
  bool chunked() const { return policy_.kind == Accumulation::Kind::Chunked; }

  T joined(T wide, T chunk) const {
    return formats_.chunks_in_float ? static_cast<T>(static_cast<float>(wide + chunk))
                                    : wide + chunk;
  }

  void round(const Format& f, T* x, const Recorder& seen) {
    const RandomWords words = next_words();
    if (!seen && kernels_.round(f, x, exact_, n_)) {
      std::copy_n(exact_, n_, x);
      return;
    }
    kernels_.encode(f, x, codes_, n_, words);
    if (!seen) {
      kernels_.decode(f, codes_, x, n_);
      return;
    }
    std::copy_n(x, n_, exact_);
    kernels_.decode(f, codes_, x, n_);
    count(x, seen);
  }

  // Counts the lanes that have the term.
  void count(const T* rounded, const Recorder& seen) {
    if (!counted_) return seen.values(exact_, rounded, n_);
    int64_t m = 0;
    for (int64_t i = 0; i < n_; ++i) {
      if (!counted_[i]) continue;
      exact_[m] = exact_[i];
      kept_rounded_[m++] = rounded[i];
    }
    seen.values(exact_, kept_rounded_, m);
  }

  // out = a + b or a - b, rounded. out is neither a nor b.
  void sum_of(BinaryOp op, const T* a, const T* b, T* out) {
    sum_of(op, a, b, out, formats_.sum, formats_.seen_sums);
  }
  void sum_of(BinaryOp op, const T* a, const T* b, T* out, const Format& f, const Recorder& seen) {
    kernels_.binary(op, a, b, out, n_);
    const auto both_positive = [&](int64_t i) {
      return !std::signbit(a[i]) && std::signbit(b[i]) == (op == BinaryOp::Sub);
    };
    sign_zero_sums(f.rounding, out, n_, both_positive);
    round(f, out, seen);
  }

  // Adds complete chunks to the sum of chunks, which the policy rounds.
  void round_chunks(const uint8_t* present) {
    bool any = false;
    for (int64_t i = 0; i < n_; ++i) {
      taken_[i] += !present || present[i];
      any |= taken_[i] >= policy_.chunk;
    }
    if (!any) return;
    for (int64_t i = 0; i < n_; ++i) complete_[i] = taken_[i] >= policy_.chunk;
    counted_ = complete_;
    sum_of(BinaryOp::Add, wide_, acc_, next_, formats_.outer, formats_.seen_outer);
    counted_ = nullptr;
    for (int64_t i = 0; i < n_; ++i) {
      if (!complete_[i]) continue;
      wide_[i] = next_[i];
      acc_[i] = error_[i] = 0;
      taken_[i] = 0;
    }
  }

  void add_term() {
    if (machine_sums_) {
      for (int64_t i = 0; i < n_; ++i) acc_[i] += term_[i];
      ++step_; // skips the word that rounding would take
      return;
    }
    if (!policy_.kahan) {
      sum_of(BinaryOp::Add, acc_, term_, next_);
      std::copy_n(next_, n_, acc_);
      return;
    }
    sum_of(BinaryOp::Sub, term_, error_, factor_); // the term, corrected
    sum_of(BinaryOp::Add, acc_, factor_, next_);
    sum_of(BinaryOp::Sub, next_, acc_, term_); // the part of the term that was added
    sum_of(BinaryOp::Sub, term_, factor_, error_);
    std::copy_n(next_, n_, acc_);
  }

  void keep(const uint8_t* present) {
    if (!present) return;
    std::copy_n(acc_, n_, kept_acc_);
    std::copy_n(error_, n_, kept_error_);
  }

  void after_term(const uint8_t* present) {
    counted_ = nullptr;
    for (int64_t i = 0; present && i < n_; ++i) {
      acc_[i] = present[i] ? acc_[i] : kept_acc_[i];
      error_[i] = present[i] ? error_[i] : kept_error_[i];
    }
    if (chunked() && policy_.outer) {
      round_chunks(present);
      return;
    }
    for (int64_t i = 0; chunked() && i < n_; ++i) {
      if ((present && !present[i]) || ++taken_[i] < policy_.chunk) continue;
      wide_[i] = joined(wide_[i], acc_[i]);
      acc_[i] = error_[i] = 0;
      taken_[i] = 0;
    }
  }

  const CpuKernels& kernels_;
  const StepFormats& formats_;
  const Accumulation& policy_;
  // Operands of a float32 accumulator are float only if float32's own sums are meant.
  const bool machine_sums_;
  int64_t n_{0}, step_{0}, first_{0}, all_{0};
  int64_t taken_[kLanes]; // terms in the chunk so far
  alignas(64) T acc_[kLanes], term_[kLanes], error_[kLanes], next_[kLanes], wide_[kLanes],
      factor_[kLanes], kept_acc_[kLanes], kept_error_[kLanes];
  alignas(64) char codes_[kLanes * 8];
  // For counts: the lanes that have the term, if not all do, and the values before rounding.
  const uint8_t* counted_{nullptr};
  uint8_t complete_[kLanes];
  T exact_[kLanes], kept_rounded_[kLanes];
};

} // namespace at::formats
