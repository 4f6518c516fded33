// One sum of a dot product, every step rounded, by one thread.
#pragma once
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/CountTable.h>
#include <ATen/native/formats/cuda/Odd.h>
#include <ATen/native/formats/cuda/Places.h>

namespace at::formats::cuda {

template <typename T>
TD_HOST_DEVICE T as_float32(T x) {
  return static_cast<T>(static_cast<float>(x));
}

// Rounds a number to a format's. Compiled once: a step rounds in several places, and inlining a
// whole codec at each makes a kernel of 60,000 instructions.
template <typename T>
TD_HOST_DEVICE TD_NOINLINE static T rounded_by(const Encoder<T>& encoder, const Decoder<T>& decoder,
                                               T x, uint64_t word) {
  return decoder(static_cast<typename Machine<T>::Bits>(encoder.at_word(x, word)));
}
template <typename T>
TD_HOST_DEVICE TD_NOINLINE static uint64_t code_by(const Encoder<T>& encoder, T x, uint64_t word) {
  return encoder.at_word(x, word);
}

// Data that all threads share.
template <typename T>
struct Steps {
  Encoder<T> product_encoder, sum_encoder, outer_encoder, result_encoder;
  Decoder<T> product_decoder, sum_decoder, outer_decoder;
  StepCounts seen_products, seen_sums, seen_outer;
  ZeroSigns signs, outer_signs;
  bool fused, kahan, exact_product, rounds_chunks, chunks_in_float;
  SumOrder order;
  int64_t chunk, divisor, all, lanes;

  Steps(const StepPolicy& p, int64_t all)
      : product_encoder(p.product, {p.seed}),
        sum_encoder(p.sum, {p.seed}),
        outer_encoder(p.outer, {p.seed}),
        result_encoder(p.result, {p.seed}),
        product_decoder(p.product),
        sum_decoder(p.sum),
        outer_decoder(p.outer),
        seen_products(p.seen_products),
        seen_sums(p.seen_sums),
        seen_outer(p.seen_outer),
        signs(p.sum.rounding),
        outer_signs(p.outer.rounding),
        fused(p.fused),
        kahan(p.kahan),
        exact_product(p.exact_product),
        rounds_chunks(p.rounds_chunks),
        chunks_in_float(p.chunks_in_float),
        order(p.order),
        chunk(p.chunk),
        divisor(p.divisor),
        all(all),
        lanes(p.lanes) {}
};

// A sum in progress. Every rounding has a random word of its own, by its number and the result's
// index, whether or not the mode needs one.
template <typename T>
class Sum {
 public:
  TD_HOST_DEVICE Sum(const Steps<T>& steps, int64_t place) : steps_(steps), place_(place) {}
  TD_HOST_DEVICE void begin(T start) {
    if (steps_.chunk) wide_ = steps_.rounds_chunks ? outer_rounded(start) : start;
    else acc_ = rounded(start);
  }

  TD_HOST_DEVICE void add_product(T a, T b) {
    if (steps_.fused) {
      acc_ =
          rounded(steps_.signs.signed_sum(c10::formats::fma_odd(a, b, acc_),
                                          is_positive(a) == is_positive(b) && is_positive(acc_)));
    } else {
      add_term(product(a, b));
    }
    end_term();
  }
  TD_HOST_DEVICE void add(T b) {
    add_term(b);
    end_term();
  }
  // Skips an absent term; its random words are used up all the same.
  TD_HOST_DEVICE void skip(bool product) {
    const int words = (steps_.kahan ? 4 : 1) + (product && !steps_.exact_product);
    step_ += steps_.fused ? 1 : words;
  }

  TD_HOST_DEVICE uint64_t finished() {
    if (!steps_.chunk) return result(acc_);
    // A chunk without terms does not count: its 0 would turn a start of -0 into +0. (Its sum is
    // still rounded and uses up a word.)
    const T chunks = joined();
    return result(taken_ > 0 ? chunks : wide_);
  }
  // Returns the code of a sum.
  TD_HOST_DEVICE uint64_t result(T sum) {
    if (steps_.divisor != 1) sum = c10::formats::divide_odd(sum, static_cast<T>(steps_.divisor));
    return code_by(steps_.result_encoder, sum, next_word());
  }

  // For other orders than one running sum. A product alone; the sum of two sums; a number as the
  // accumulator holds it. taken_sum() returns the running sum so far, and begins a new one.
  TD_HOST_DEVICE T product(T a, T b) {
    const T exact = c10::formats::multiply_odd(a, b);
    if (steps_.exact_product) return exact;
    return counted(steps_.seen_products, exact,
                   rounded_by(steps_.product_encoder, steps_.product_decoder, exact, next_word()));
  }
  TD_HOST_DEVICE T join(T a, T b) { return sum_of(BinaryOp::Add, a, b); }
  TD_HOST_DEVICE T hold(T x) { return rounded(x); }
  TD_HOST_DEVICE void pass_word() { ++step_; }
  TD_HOST_DEVICE T taken_sum() {
    const T sum = acc_;
    acc_ = error_ = 0;
    return sum;
  }

 private:
  TD_HOST_DEVICE uint64_t next_word() {
    return static_cast<uint64_t>(step_++ * steps_.all + place_);
  }
  TD_HOST_DEVICE T counted(const StepCounts& seen, T x, T r) const {
    if (seen.tables) count_step(seen, static_cast<double>(x), static_cast<double>(r), place_);
    return r;
  }
  TD_HOST_DEVICE T rounded(T x) {
    return counted(steps_.seen_sums, x,
                   rounded_by(steps_.sum_encoder, steps_.sum_decoder, x, next_word()));
  }
  TD_HOST_DEVICE T sum_of(BinaryOp op, T a, T b) {
    return rounded(steps_.signs.of(op, a, b, binary_odd(op, a, b)));
  }
  TD_HOST_DEVICE T outer_rounded(T x) {
    return counted(steps_.seen_outer, x,
                   rounded_by(steps_.outer_encoder, steps_.outer_decoder, x, next_word()));
  }
  TD_HOST_DEVICE T joined() {
    if (steps_.rounds_chunks)
      return outer_rounded(
          steps_.outer_signs.of(BinaryOp::Add, wide_, acc_, c10::formats::add_odd(wide_, acc_)));
    return steps_.chunks_in_float ? as_float32(wide_ + acc_) : wide_ + acc_;
  }

  TD_HOST_DEVICE void add_term(T term) {
    if (!steps_.kahan) {
      acc_ = sum_of(BinaryOp::Add, acc_, term);
      return;
    }
    const T corrected = sum_of(BinaryOp::Sub, term, error_);
    const T next = sum_of(BinaryOp::Add, acc_, corrected);
    const T arrived = sum_of(BinaryOp::Sub, next, acc_);
    error_ = sum_of(BinaryOp::Sub, arrived, corrected);
    acc_ = next;
  }

  TD_HOST_DEVICE void end_term() {
    if (!steps_.chunk || ++taken_ < steps_.chunk) return;
    wide_ = joined();
    acc_ = error_ = 0;
    taken_ = 0;
  }

  const Steps<T>& steps_;
  int64_t place_, step_{0}, taken_{0};
  T acc_{0}, error_{0}, wide_{0};
};

// The memory that such sums, computed in T, read and write.
template <typename T, typename Value = T>
struct StepOperands {
  Places places;
  const Value *a, *b, *start;
  CodesOut out;
  Steps<T> steps;

  StepOperands(const StepPolicy& policy, const Dots<Value>& dots, void* codes)
      : places{dots.shape, dots.present, dots.present_rows},
        a(dots.a),
        b(dots.b),
        start(dots.start),
        out{codes, policy.result.itemsize()},
        steps(policy, results()) {}

  int64_t results() const { return places.shape.batches * places.shape.m * places.shape.n; }
  TD_HOST_DEVICE void add(Sum<T>& sum, int64_t i, int64_t term) const {
    if (!places.has_row(i, term)) return;
    if (!places.has(i, term)) return sum.skip(a != nullptr);
    const T y = b[places.right(i, term)];
    if (a) sum.add_product(a[places.left(i, term)], y);
    else sum.add(y);
  }
  // Computes result i, its terms in order.
  TD_HOST_DEVICE uint64_t sequential(int64_t i) const {
    Sum<T> sum(steps, i);
    if (start) sum.begin(start[i]);
    for (int64_t term = 0; term < places.shape.k; ++term) add(sum, i, term);
    return sum.finished();
  }
};

} // namespace at::formats::cuda
