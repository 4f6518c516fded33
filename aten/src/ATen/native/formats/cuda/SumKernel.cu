// Dot products and sums of a format's values under policies that stock kernels cannot carry out:
// every step rounded, or one rounding of the exact sum. One thread computes a result and adds its
// terms in order.
#include <ATen/native/formats/cuda/StepSum.h>
#include <c10/formats/sums/ExactSum.h>
#include <c10/formats/sums/SpecialTerms.h>

namespace at::formats::cuda {
namespace {

using c10::formats::ExactSumOf;
using c10::formats::finite;
using c10::formats::Term;
using c10::formats::Unpacked;

template <typename T, typename Value>
struct StepSums : StepOperands<T, Value> {
  TD_HOST_DEVICE void operator()(int64_t i) const { this->out.put(i, this->sequential(i)); }
};

template <typename T, typename Value>
Status one_by_one(const StepPolicy& policy, const Dots<Value>& dots, void* out, Stream stream) {
  const StepSums<T, Value> body{{policy, dots, out}};
  return for_each(body.results(), stream, body);
}

Status step_sums(const StepPolicy& policy, const Dots<double>& dots, void* out, Stream stream) {
  if (policy.order != SumOrder::Sequential) return ordered_sums(policy, dots, out, stream);
  return one_by_one<double>(policy, dots, out, stream);
}
Status step_sums(const StepPolicy& policy, const Dots<float>& dots, void* out, Stream stream) {
  if (policy.order != SumOrder::Sequential) return ordered_sums(policy, dots, out, stream);
  if (!policy.is_seen() && serves_tiles(policy, dots)) return tile_sums(policy, dots, out, stream);
  return sums_in_binary32(policy) ? one_by_one<double>(policy, dots, out, stream)
                                  : one_by_one<float>(policy, dots, out, stream);
}

// A column's running sums: one thread goes down the column.
template <typename T, typename Value>
struct RunningSums {
  DotShape shape;
  const Value* values;
  CodesOut out;
  Steps<T> steps;

  TD_HOST_DEVICE void operator()(int64_t column) const {
    const int64_t first = column / shape.n * shape.k * shape.n + column % shape.n;
    Sum<T> sum(steps, first);
    for (int64_t i = 0; i < shape.k; ++i) {
      const int64_t at = first + i * shape.n;
      sum.add(values[at]);
      out.put(at, sum.finished());
    }
  }
};

template <typename T, typename Value>
Status down_columns(const StepPolicy& policy, const DotShape& shape, const Value* values, void* out,
                    Stream stream) {
  const int64_t n = shape.batches * shape.n;
  return for_each(
      n, stream,
      RunningSums<T, Value>{
          shape, values, {out, policy.result.itemsize()}, Steps<T>(policy, n * shape.k)});
}

template <typename Value>
Status running_sums(const StepPolicy& policy, const DotShape& shape, const Value* values, void* out,
                    Stream stream) {
  if constexpr (std::is_same_v<Value, float>) {
    if (!sums_in_binary32(policy)) return down_columns<float>(policy, shape, values, out, stream);
  }
  return down_columns<double>(policy, shape, values, out, stream);
}

// ---- exact ----

// Rounds an exact sum to a code, with the random word of its index.
struct ExactOutput {
  CodesOut codes;
  Format format;
  RandomWords words;

  ExactOutput(void* out, const Format& result, const RandomWords& words)
      : codes{out, result.itemsize()},
        format(on_device(result)),
        words(words) {}

  TD_HOST_DEVICE void put(int64_t at, const Unpacked& value) const {
    codes.put(
        at,
        encode_any(format, value, drawn_word(format, words.seed, words.first + at * words.step)));
  }
};

// Calls body with the number of digits that a format's exact sums take, or a little more. A GPU
// reserves them for all threads that it can run at once.
template <typename Body>
Status with_digits(const Format& f, const Body& body) {
  const int digits = ExactSumOf<c10::formats::kMostDigits>::digits_of(f);
  if (digits <= 12) return body(std::integral_constant<int, 12>{}); // posit16es2: 11
  if (digits <= 24) return body(std::integral_constant<int, 24>{}); // float32's exponents: 21
  return body(std::integral_constant<int, c10::formats::kMostDigits>{});
}

template <int digits>
struct Exact {
  Places places;
  const double *a, *b, *start;
  Format format;
  ExactOutput out;
  int64_t divisor;
  bool narrow; // true if mantissas have at most 15 bits

  TD_HOST_DEVICE void operator()(int64_t i) const {
    ExactSumOf<digits> sum(format);
    double special = 0; // the IEEE sum of the infinite and NaN terms
    if (start) {
      if (finite(start[i])) sum.add(c10::formats::term_of(format, start[i]), Term{1, 0});
      else special = start[i];
    }
    for (int64_t term = 0; term < places.shape.k; ++term) {
      if (!places.has_row(i, term) || !places.has(i, term)) continue;
      const double x = a ? a[places.left(i, term)] : 1, y = b[places.right(i, term)];
      if (!finite(x) || !finite(y)) {
        special += c10::formats::special_product(x, y);
        continue;
      }
      const Term p = a ? c10::formats::term_of(format, x) : Term{1, 0},
                 q = c10::formats::term_of(format, y);
      if (narrow && a) sum.add_narrow(p, q);
      else sum.add(p, q);
    }
    out.put(i,
            finite(special) ? divided(sum.taken(), static_cast<uint64_t>(divisor))
                            : c10::formats::unpack(special));
  }
};

Status exact(const Format& f, const Format& result, const Dots<double>& dots, int64_t divisor,
             void* out, const RandomWords& words, Stream stream) {
  return with_digits(f, [&](auto digits) {
    const Exact<digits.value> body{{dots.shape, dots.present, dots.present_rows},
                                   dots.a,
                                   dots.b,
                                   dots.start,
                                   on_device(f),
                                   {out, result, words},
                                   divisor,
                                   f.significand_bits() <= 15};
    return for_each(dots.shape.batches * dots.shape.m * dots.shape.n, stream, body);
  });
}

template <int digits>
struct RunningExact {
  DotShape shape;
  const double* values;
  Format format;
  ExactOutput out;

  TD_HOST_DEVICE void operator()(int64_t column) const {
    const int64_t first = column / shape.n * shape.k * shape.n + column % shape.n;
    ExactSumOf<digits> sum(format);
    double special = 0; // the sum of the non-finite terms so far
    for (int64_t i = 0; i < shape.k; ++i) {
      const int64_t at = first + i * shape.n;
      if (finite(values[at])) sum.add(c10::formats::term_of(format, values[at]), Term{1, 0});
      else special += values[at];
      out.put(at, finite(special) ? sum.value() : c10::formats::unpack(special));
    }
  }
};

Status running_exact(const Format& f, const Format& result, const DotShape& shape,
                     const double* values, void* out, const RandomWords& words, Stream stream) {
  return with_digits(f, [&](auto digits) {
    return for_each(shape.batches * shape.n, stream,
                    RunningExact<digits.value>{shape, values, on_device(f), {out, result, words}});
  });
}

} // namespace

void fill_sums(CudaKernels& k) {
  k.on_float.steps = &step_sums;
  k.on_double.steps = &step_sums;
  k.exact = &exact;
  k.on_float.running_steps = &running_sums<float>;
  k.on_double.running_steps = &running_sums<double>;
  k.running_exact = &running_exact;
}

} // namespace at::formats::cuda
