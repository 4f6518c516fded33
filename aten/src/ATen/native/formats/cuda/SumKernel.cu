// Dot products and sums under the policies that stock kernels cannot do: every step rounded, and one rounding of the exact sum. A thread
// has a result to itself, and adds its terms up in their order.
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
  Encoder<T> product_encoder, sum_encoder, result_encoder;
  Decoder<T> product_decoder, sum_decoder;
  Odd<T> sum_odd, result_odd;
  bool fused, kahan, chunks_in_float;
  int64_t chunk, divisor, all;

  Steps(const StepPolicy& p, int64_t all)
      : product_encoder(p.product, {p.seed}),
        sum_encoder(p.sum, {p.seed}),
        result_encoder(p.result, {p.seed}),
        product_decoder(p.product),
        sum_decoder(p.sum),
        sum_odd(p.sum.rounding),
        result_odd(Rounding::NearestEven),
        fused(p.fused),
        kahan(p.kahan),
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
    if (steps.chunk) wide_ = *start;
    else acc_ = rounded(*start);
  }

  TD_HOST_DEVICE void add_product(T a, T b) {
    if (steps_.fused) {
      acc_ = rounded(steps_.sum_odd.fma(a, b, acc_));
    } else {
      const uint64_t code = steps_.product_encoder.at_word(c10::formats::multiply_odd(a, b), next_word());
      add_term(steps_.product_decoder(static_cast<Bits>(code)));
    }
    end_term();
  }
  TD_HOST_DEVICE void add(T b) {
    add_term(b);
    end_term();
  }
  // A term that is not there takes its words all the same.
  TD_HOST_DEVICE void skip(bool product) { step_ += steps_.fused ? 1 : (steps_.kahan ? 4 : 1) + product; }

  TD_HOST_DEVICE uint64_t finished() {
    T sum = !steps_.chunk ? acc_ : taken_ > 0 ? joined() : wide_; // a chunk without terms is no chunk: its 0 would make +0 of a start of -0
    if (steps_.divisor != 1) sum = steps_.result_odd.binary(BinaryOp::Div, sum, static_cast<T>(steps_.divisor));
    return steps_.result_encoder.at_word(sum, next_word());
  }

 private:
  TD_HOST_DEVICE uint64_t next_word() { return static_cast<uint64_t>(step_++ * steps_.all + place_); }
  TD_HOST_DEVICE T rounded(T x) { return steps_.sum_decoder(static_cast<Bits>(steps_.sum_encoder.at_word(x, next_word()))); }
  TD_HOST_DEVICE T sum_of(BinaryOp op, T a, T b) { return rounded(steps_.sum_odd.binary(op, a, b)); }
  TD_HOST_DEVICE T joined() const { return steps_.chunks_in_float ? as_float32(wide_ + acc_) : wide_ + acc_; }

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
  const Code *a, *b, *start;
  Code* out;
  Steps<T> steps;
  Decoder<T> decode;

  TD_HOST_DEVICE void operator()(int64_t i) const {
    const T begin = start ? decode(start[i]) : T{0};
    Sum<T> sum(steps, i, start ? &begin : nullptr);
    for (int64_t term = 0; term < places.shape.k; ++term) {
      if (!places.has_row(i, term)) continue;
      if (!places.has(i, term)) {
        sum.skip(a != nullptr);
        continue;
      }
      const T y = decode(b[places.right(i, term)]);
      if (a) sum.add_product(decode(a[places.left(i, term)]), y);
      else sum.add(y);
    }
    out[i] = static_cast<Code>(sum.finished());
  }
};

template <typename T, typename Code>
Status steps_as(const Format& f, const StepPolicy& policy, const Places& places, const void* a, const void* b, const void* start, void* out,
                Stream stream) {
  const int64_t n = places.shape.batches * places.shape.m * places.shape.n;
  const StepSums<T, Code> body{places,
                               static_cast<const Code*>(a),
                               static_cast<const Code*>(b),
                               static_cast<const Code*>(start),
                               static_cast<Code*>(out),
                               Steps<T>(policy, n),
                               Decoder<T>(f)};
  return for_each(n, stream, body);
}

bool steps_in_float(const StepPolicy& p) {
  const bool all = p.result.arithmetic_in_float() && p.product.arithmetic_in_float() && p.sum.arithmetic_in_float();
  return all && !(p.fused && p.sum.significand_bits() > 12);
}

Status steps(const Format& f, const StepPolicy& policy, const DotShape& shape, const void* a, const void* b, const void* start,
             const uint8_t* present, const uint8_t* present_rows, void* out, Stream stream) {
  const Places places{shape, present, present_rows};
  return with_code_type(f, [&](auto in) {
    using Code = decltype(in);
    return (steps_in_float(policy) ? &steps_as<float, Code> : &steps_as<double, Code>)(f, policy, places, a, b, start, out, stream);
  });
}

// ---- exact ----

TD_HOST_DEVICE bool finite(double x) {
  return x - x == 0;
}
TD_HOST_DEVICE double finite_sign(double x) {
  return finite(x) ? (x > 0) - (x < 0) : x;
}

template <typename Code>
struct Exact {
  Places places;
  const Code *a, *b, *start;
  Code* out;
  Format format, result;
  Decoder<double> decode;
  RandomWords words;
  int64_t divisor;
  bool narrow; // mantissas of at most 15 bits

  TD_HOST_DEVICE void operator()(int64_t i) const {
    ExactSum sum(format);
    double special = 0; // the sum as IEEE arithmetic has it, of what is infinite or NaN
    if (start) {
      const double begin = decode(start[i]);
      if (finite(begin)) sum.add(c10::formats::term_of(format, begin), Term{1, 0});
      else special = begin;
    }
    for (int64_t term = 0; term < places.shape.k; ++term) {
      if (!places.has_row(i, term) || !places.has(i, term)) continue;
      const double x = a ? decode(a[places.left(i, term)]) : 1, y = decode(b[places.right(i, term)]);
      if (!finite(x) || !finite(y)) {
        special += finite_sign(x) * finite_sign(y);
        continue;
      }
      const Term p = a ? c10::formats::term_of(format, x) : Term{1, 0}, q = c10::formats::term_of(format, y);
      if (narrow && a) sum.add_narrow(p, q);
      else sum.add(p, q);
    }
    const Unpacked value = finite(special) ? divided(sum.value(), static_cast<uint64_t>(divisor)) : c10::formats::unpack(special);
    out[i] = static_cast<Code>(encode_any(result, value, drawn_word(result, words.seed, words.first + i * words.step)));
  }
};

Status exact(const Format& f, const Format& result, const DotShape& shape, const void* a, const void* b, const void* start, const uint8_t* present,
             const uint8_t* present_rows, int64_t divisor, void* out, const RandomWords& words, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    const Exact<Code> body{{shape, present, present_rows},
                           static_cast<const Code*>(a),
                           static_cast<const Code*>(b),
                           static_cast<const Code*>(start),
                           static_cast<Code*>(out),
                           f,
                           result,
                           Decoder<double>(f),
                           words,
                           divisor,
                           f.significand_bits() <= 15};
    return for_each(shape.batches * shape.m * shape.n, stream, body);
  });
}

} // namespace

void fill_sums(CudaKernels& k) {
  k.steps = &steps;
  k.exact = &exact;
}

} // namespace at::formats::cuda
