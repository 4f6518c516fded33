// Dot products and sums of a format's values under the policies that stock kernels cannot do: every step rounded, and one rounding of the exact
// sum. A thread has a result to itself, and adds its terms up in their order.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/Odd.h>
#include <c10/formats/ExactSum.h>

namespace at::formats::cuda {
namespace {

using c10::formats::ExactSum;
using c10::formats::Term;
using c10::formats::Unpacked;

// Where result i of a shape lies, and its terms.
struct Places {
  DotShape shape;
  const uint8_t *present, *present_rows;

  TD_HOST_DEVICE int64_t row(int64_t i) const { return i / shape.n; } // batch * m + line
  TD_HOST_DEVICE int64_t left(int64_t i, int64_t term) const { return row(i) * shape.k + term; }
  TD_HOST_DEVICE int64_t right(int64_t i, int64_t term) const { return (row(i) / shape.m * shape.k + term) * shape.n + i % shape.n; }
  TD_HOST_DEVICE bool has_row(int64_t i, int64_t term) const { return !present_rows || present_rows[left(i, term)]; }
  TD_HOST_DEVICE bool has(int64_t i, int64_t term) const { return !present || present[right(i, term)]; }
};

template <typename T>
TD_HOST_DEVICE T as_float32(T x) {
  return static_cast<T>(static_cast<float>(x));
}

// What all threads share.
template <typename T>
struct Steps {
  Encoder<T> product_encoder, sum_encoder, outer_encoder, result_encoder;
  Decoder<T> product_decoder, sum_decoder, outer_decoder;
  ZeroSigns signs, outer_signs;
  bool fused, kahan, exact_product, rounds_chunks, chunks_in_float;
  int64_t chunk, divisor, all;

  Steps(const StepPolicy& p, int64_t all)
      : product_encoder(p.product, {p.seed}),
        sum_encoder(p.sum, {p.seed}),
        outer_encoder(p.outer, {p.seed}),
        result_encoder(p.result, {p.seed}),
        product_decoder(p.product),
        sum_decoder(p.sum),
        outer_decoder(p.outer),
        signs(p.sum.rounding),
        outer_signs(p.outer.rounding),
        fused(p.fused),
        kahan(p.kahan),
        exact_product(p.exact_product),
        rounds_chunks(p.rounds_chunks),
        chunks_in_float(p.chunks_in_float),
        chunk(p.chunk),
        divisor(p.divisor),
        all(all) {}
};

// One result on its way. Every rounding takes a word of its own, by its number and the result's place, whether the mode needs one or not.
template <typename T>
class Sum {
  using Bits = typename Machine<T>::Bits;

 public:
  TD_HOST_DEVICE Sum(const Steps<T>& steps, int64_t place, const T* start) : steps_(steps), place_(place) {
    if (!start) return;
    if (steps.chunk) wide_ = steps.rounds_chunks ? outer_rounded(*start) : *start;
    else acc_ = rounded(*start);
  }

  TD_HOST_DEVICE void add_product(T a, T b) {
    if (steps_.fused) {
      acc_ = rounded(steps_.signs.signed_sum(c10::formats::fma_odd(a, b, acc_), is_positive(a) == is_positive(b) && is_positive(acc_)));
    } else {
      const T product = c10::formats::multiply_odd(a, b);
      add_term(steps_.exact_product ? product : steps_.product_decoder(static_cast<Bits>(steps_.product_encoder.at_word(product, next_word()))));
    }
    end_term();
  }
  TD_HOST_DEVICE void add(T b) {
    add_term(b);
    end_term();
  }
  // A term that is not there takes its words all the same.
  TD_HOST_DEVICE void skip(bool product) { step_ += steps_.fused ? 1 : (steps_.kahan ? 4 : 1) + (product && !steps_.exact_product); }

  TD_HOST_DEVICE uint64_t finished() {
    // A chunk without terms is no chunk: its 0 would make +0 of a start of -0. (Its sum is rounded all the same, and takes a word.)
    const T chunks = steps_.chunk ? joined() : T{0};
    T sum = !steps_.chunk ? acc_ : taken_ > 0 ? chunks : wide_;
    if (steps_.divisor != 1) sum = c10::formats::divide_odd(sum, static_cast<T>(steps_.divisor));
    return steps_.result_encoder.at_word(sum, next_word());
  }

 private:
  TD_HOST_DEVICE uint64_t next_word() { return static_cast<uint64_t>(step_++ * steps_.all + place_); }
  TD_HOST_DEVICE T rounded(T x) { return steps_.sum_decoder(static_cast<Bits>(steps_.sum_encoder.at_word(x, next_word()))); }
  TD_HOST_DEVICE T sum_of(BinaryOp op, T a, T b) { return rounded(steps_.signs.of(op, a, b, binary_odd(op, a, b))); }
  TD_HOST_DEVICE T outer_rounded(T x) { return steps_.outer_decoder(static_cast<Bits>(steps_.outer_encoder.at_word(x, next_word()))); }
  TD_HOST_DEVICE T joined() {
    if (steps_.rounds_chunks) return outer_rounded(steps_.outer_signs.of(BinaryOp::Add, wide_, acc_, c10::formats::add_odd(wide_, acc_)));
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

template <typename T, typename Code>
struct StepSums {
  Places places;
  const T *a, *b, *start;
  Code* out;
  Steps<T> steps;

  TD_HOST_DEVICE void operator()(int64_t i) const {
    Sum<T> sum(steps, i, start ? start + i : nullptr);
    for (int64_t term = 0; term < places.shape.k; ++term) {
      if (!places.has_row(i, term)) continue;
      if (!places.has(i, term)) {
        sum.skip(a != nullptr);
        continue;
      }
      const T y = b[places.right(i, term)];
      if (a) sum.add_product(a[places.left(i, term)], y);
      else sum.add(y);
    }
    out[i] = static_cast<Code>(sum.finished());
  }
};

template <typename T>
Status step_sums(const StepPolicy& policy, const Dots<T>& dots, void* out, Stream stream) {
  return with_code_type(policy.result, [&](auto code) {
    using Code = decltype(code);
    const int64_t n = dots.shape.batches * dots.shape.m * dots.shape.n;
    const StepSums<T, Code> body{
        {dots.shape, dots.present, dots.present_rows}, dots.a, dots.b, dots.start, static_cast<Code*>(out), Steps<T>(policy, n)};
    return for_each(n, stream, body);
  });
}

// A column's running sums: a thread goes down the column.
template <typename T, typename Code>
struct RunningSums {
  DotShape shape;
  const T* values;
  Code* out;
  Steps<T> steps;

  TD_HOST_DEVICE void operator()(int64_t column) const {
    const int64_t first = column / shape.n * shape.k * shape.n + column % shape.n;
    Sum<T> sum(steps, first, nullptr);
    for (int64_t i = 0; i < shape.k; ++i) {
      const int64_t at = first + i * shape.n;
      sum.add(values[at]);
      out[at] = static_cast<Code>(sum.finished());
    }
  }
};

template <typename T>
Status running_sums(const StepPolicy& policy, const DotShape& shape, const T* values, void* out, Stream stream) {
  return with_code_type(policy.result, [&](auto code) {
    using Code = decltype(code);
    const int64_t n = shape.batches * shape.n;
    return for_each(n, stream, RunningSums<T, Code>{shape, values, static_cast<Code*>(out), Steps<T>(policy, n * shape.k)});
  });
}

// ---- exact ----

TD_HOST_DEVICE bool finite(double x) {
  return x - x == 0;
}
TD_HOST_DEVICE double finite_sign(double x) {
  return finite(x) ? (x > 0) - (x < 0) : x;
}

// What an exact sum makes of one: its code, by the random word of its place.
template <typename Code>
struct ExactOutput {
  Code* codes;
  Format format;
  RandomWords words;
  TD_HOST_DEVICE void put(int64_t at, const Unpacked& value) const {
    codes[at] = static_cast<Code>(encode_any(format, value, drawn_word(format, words.seed, words.first + at * words.step)));
  }
};

template <typename Code>
struct Exact {
  Places places;
  const double *a, *b, *start;
  Format format;
  ExactOutput<Code> out;
  int64_t divisor;
  bool narrow; // mantissas of at most 15 bits

  TD_HOST_DEVICE void operator()(int64_t i) const {
    ExactSum sum(format);
    double special = 0; // the sum as IEEE arithmetic has it, of what is infinite or NaN
    if (start) {
      if (finite(start[i])) sum.add(c10::formats::term_of(format, start[i]), Term{1, 0});
      else special = start[i];
    }
    for (int64_t term = 0; term < places.shape.k; ++term) {
      if (!places.has_row(i, term) || !places.has(i, term)) continue;
      const double x = a ? a[places.left(i, term)] : 1, y = b[places.right(i, term)];
      if (!finite(x) || !finite(y)) {
        special += finite_sign(x) * finite_sign(y);
        continue;
      }
      const Term p = a ? c10::formats::term_of(format, x) : Term{1, 0}, q = c10::formats::term_of(format, y);
      if (narrow && a) sum.add_narrow(p, q);
      else sum.add(p, q);
    }
    out.put(i, finite(special) ? divided(sum.value(), static_cast<uint64_t>(divisor)) : c10::formats::unpack(special));
  }
};

Status exact(const Format& f, const Format& result, const Dots<double>& dots, int64_t divisor, void* out, const RandomWords& words, Stream stream) {
  return with_code_type(result, [&](auto code) {
    using Code = decltype(code);
    const Exact<Code> body{{dots.shape, dots.present, dots.present_rows},
                           dots.a,
                           dots.b,
                           dots.start,
                           on_device(f),
                           {static_cast<Code*>(out), on_device(result), words},
                           divisor,
                           f.significand_bits() <= 15};
    return for_each(dots.shape.batches * dots.shape.m * dots.shape.n, stream, body);
  });
}

template <typename Code>
struct RunningExact {
  DotShape shape;
  const double* values;
  Format format;
  ExactOutput<Code> out;

  TD_HOST_DEVICE void operator()(int64_t column) const {
    const int64_t first = column / shape.n * shape.k * shape.n + column % shape.n;
    ExactSum sum(format);
    double special = 0; // of what was not finite so far
    for (int64_t i = 0; i < shape.k; ++i) {
      const int64_t at = first + i * shape.n;
      if (finite(values[at])) sum.add(c10::formats::term_of(format, values[at]), Term{1, 0});
      else special += values[at];
      out.put(at, finite(special) ? sum.value() : c10::formats::unpack(special));
    }
  }
};

Status running_exact(const Format& f, const Format& result, const DotShape& shape, const double* values, void* out, const RandomWords& words,
                     Stream stream) {
  return with_code_type(result, [&](auto code) {
    using Code = decltype(code);
    return for_each(shape.batches * shape.n, stream,
                    RunningExact<Code>{shape, values, on_device(f), {static_cast<Code*>(out), on_device(result), words}});
  });
}

} // namespace

void fill_sums(CudaKernels& k) {
  k.steps_float = &step_sums<float>;
  k.steps_double = &step_sums<double>;
  k.exact = &exact;
  k.running_steps_float = &running_sums<float>;
  k.running_steps_double = &running_sums<double>;
  k.running_exact = &running_exact;
}

} // namespace at::formats::cuda
