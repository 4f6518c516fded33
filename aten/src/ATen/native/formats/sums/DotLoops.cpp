#include <ATen/native/formats/sums/DotLoops.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/sums/OrderedSums.h>
#include <ATen/native/formats/sums/TileDots.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/sums/ExactSum.h>
#include <c10/formats/sums/SpecialTerms.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

namespace at::formats {
namespace {

using c10::formats::ExactSum;
using c10::formats::Term;
using c10::formats::Unpacked;

} // namespace

template <typename T>
static void ordered_dots(const CpuKernels& kernels, const DotOperands<T>& dots,
                         const StepFormats& formats, const Accumulation& policy, char* codes) {
  static constexpr uint8_t nowhere[kLanes] = {};
  const int64_t m = dots.m, k = dots.k, n = dots.n, width = formats.result.itemsize(),
                blocks = (n + kLanes - 1) / kLanes;
  at::parallel_for(0, dots.batches * m * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto ordered = std::make_unique<OrderedSums<T>>(kernels, formats, policy, k);
    T sums[kLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, batch = row / m, lane = task % blocks * kLanes,
                    lanes = std::min(kLanes, n - lane);
      const int64_t place = row * n + lane;
      const auto at = [&](int64_t i) { return (batch * k + i) * n + lane; };
      const auto there = [&](int64_t i) {
        if (dots.present_rows && !dots.present_rows[row * k + i]) return nowhere;
        return dots.present ? dots.present + at(i) : nullptr;
      };
      const auto value = [&](int64_t i, SteppedSums<T>& steps, T* out) {
        dots.a ? steps.product(dots.a[row * k + i], dots.b + at(i), out)
               : static_cast<void>(std::copy_n(dots.b + at(i), lanes, out));
      };
      const auto running = [&](int64_t i, SteppedSums<T>& steps) {
        if (there(i) == nowhere) return;
        dots.a ? steps.add_product(dots.a[row * k + i], dots.b + at(i), there(i))
               : steps.add(dots.b + at(i));
      };
      ordered->sum(dots.start ? dots.start + place : nullptr, k, lanes, place, dots.batches * m * n,
                   value, there, running, sums);
      encode_result(kernels, formats.result, sums, dots.divisor, codes + place * width, lanes,
                    ordered->next_words(), formats.seen);
    }
  });
}

template <typename T>
void step_dots(const CpuKernels& kernels, const DotOperands<T>& dots, const StepFormats& formats,
               const Accumulation& policy, char* codes) {
  const int64_t m = dots.m, k = dots.k, n = dots.n, width = formats.result.itemsize(),
                blocks = (n + kLanes - 1) / kLanes;
  const T *a = dots.a, *b = dots.b;
  if (tile_dots(kernels, dots, formats, policy, codes)) return;
  if (policy.order != Accumulation::Order::Sequential) {
    ordered_dots(kernels, dots, formats, policy, codes);
    return;
  }
  // Small blocks are not worth a second thread.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, k * std::min(n, kLanes)));
  at::parallel_for(0, dots.batches * m * blocks, grain, [&](int64_t begin, int64_t end) {
    const auto steps = std::make_unique<SteppedSums<T>>(kernels, formats, policy);
    T sums[kLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, batch = row / m, lane = task % blocks * kLanes,
                    lanes = std::min(kLanes, n - lane);
      const int64_t place = row * n + lane;
      steps->begin(dots.start ? dots.start + place : nullptr, lanes, place, dots.batches * m * n);
      for (int64_t i = 0; i < k; ++i) {
        if (dots.present_rows && !dots.present_rows[row * k + i]) continue;
        const int64_t at = (batch * k + i) * n + lane;
        if (a) {
          steps->add_product(a[row * k + i], b + at, dots.present ? dots.present + at : nullptr);
        } else {
          steps->add(b + at);
        }
      }
      steps->finish(sums);
      encode_result(kernels, formats.result, sums, dots.divisor, codes + place * width, lanes,
                    steps->next_words(), formats.seen);
    }
  });
}

// ---- exact ----

namespace {

// A matrix's rows as terms; finite is false if an element is not.
struct Terms {
  std::vector<Term> terms;
  bool finite{true};

  Terms(const Format& f, const double* x, int64_t n) : terms(n) {
    for (int64_t i = 0; i < n; ++i) {
      finite &= std::isfinite(x[i]);
      if (std::isfinite(x[i])) terms[i] = c10::formats::term_of(f, x[i]);
    }
  }
};

// The sum of the infinite and NaN operands by IEEE arithmetic; 0 if all are finite.
double special_sum(const double* a, const double* b, const uint8_t* present, int64_t k,
                   double start) {
  double sum = std::isfinite(start) ? 0 : start;
  for (int64_t i = 0; i < k; ++i) {
    if (present && !present[i]) continue;
    sum += c10::formats::special_product(a ? a[i] : 1, b[i]);
  }
  return sum;
}

// Writes one code, with its random word.
struct ExactOutput {
  Format format;
  char* codes;
  RandomWords words;
  const Recorder& seen;
  mutable std::vector<double> sums; // of all elements, cut to float64, if they are counted

  ExactOutput(const Format& format, char* codes, const RandomWords& words, const Recorder& seen,
              int64_t elements)
      : format(format),
        codes(codes),
        words(words),
        seen(seen),
        sums(seen ? elements : 0) {}

  void count() const {
    if (seen) seen.codes(sums.data(), codes, static_cast<int64_t>(sums.size()));
  }

  void put(int64_t at, const Unpacked& u) const {
    if (seen) sums[at] = c10::formats::to_double(u);
    const uint64_t random = c10::formats::is_stochastic(format.rounding)
        ? c10::formats::random_word(words.seed.number, at)
        : 0;
    const uint64_t code = c10::formats::encode(format, u, random);
    // little-endian: its low bytes come first
    std::memcpy(codes + at * format.itemsize(), &code, format.itemsize());
  }
};

} // namespace

void exact_dots(const DotOperands<double>& dots, const Format& f, const Format& result,
                const RandomWords& words, char* codes, const Recorder& seen) {
  const int64_t m = dots.m, k = dots.k, n = dots.n, batches = dots.batches;
  const double *a = dots.a, *b = dots.b, *start = dots.start;
  const uint8_t* there = dots.present; // an absent finite term is 0
  const Terms left(f, a, a ? batches * m * k : 0), right(f, b, batches * n * k);
  const Term one{1, 0};
  const bool narrow = f.significand_bits() <= 15, all_finite = left.finite && right.finite;
  const ExactOutput output(result, codes, words, seen, batches * m * n);
  at::parallel_for(0, batches * m, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, n * k)),
                   [&](int64_t begin, int64_t end) {
                     ExactSum sum(f);
                     for (int64_t row = begin; row < end; ++row) {
                       const int64_t batch = row / m;
                       for (int64_t j = 0; j < n; ++j) {
                         const int64_t at = row * n + j, column = (batch * n + j) * k;
                         const Term *x = a ? left.terms.data() + row * k : nullptr,
                                    *y = right.terms.data() + column;
                         if (!all_finite || (start && !std::isfinite(start[at]))) {
                           const double special = special_sum(a ? a + row * k : nullptr, b + column,
                                                              there ? there + column : nullptr, k,
                                                              start ? start[at] : 0);
                           if (!std::isfinite(special)) {
                             output.put(at, c10::formats::unpack(special));
                             continue;
                           }
                         }
                         sum.clear();
                         if (start) sum.add(c10::formats::term_of(f, start[at]), one);
                         if (!x) {
                           for (int64_t i = 0; i < k; ++i) sum.add(y[i], one);
                         } else if (narrow) {
                           for (int64_t i = 0; i < k; ++i) sum.add_narrow(x[i], y[i]);
                         } else {
                           for (int64_t i = 0; i < k; ++i) sum.add(x[i], y[i]);
                         }
                         output.put(at, divided(sum.value(), static_cast<uint64_t>(dots.divisor)));
                       }
                     }
                   });
  output.count();
}

namespace {

// x / 2^last, for a multiple x of 2^last.
__int128 in_places(double x, int last) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const int field = static_cast<int>(bits >> 52 & 0x7ff), shift = field - 1075 - last;
  if (field == 0) return 0;
  const __int128 mantissa = static_cast<__int128>(fraction | uint64_t{1} << 52),
                 magnitude = shift >= 0 ? mantissa << shift : mantissa >> -shift;
  return bits >> 63 ? -magnitude : magnitude;
}

// places * 2^last; for places == 0 a positive zero.
Unpacked unpack_places(__int128 places, int last) {
  Unpacked u;
  if (places == 0) return u;
  u.cls = c10::formats::Class::Finite;
  u.negative = places < 0;
  unsigned __int128 magnitude = static_cast<unsigned __int128>(u.negative ? -places : places);
  const auto high = static_cast<uint64_t>(magnitude >> 64);
  const int zeros = high ? c10::formats::count_leading_zeros(high)
                         : 64 + c10::formats::count_leading_zeros(static_cast<uint64_t>(magnitude));
  magnitude <<= zeros;
  u.significand = static_cast<uint64_t>(magnitude >> 64);
  u.sticky = static_cast<uint64_t>(magnitude) != 0;
  u.exponent = 127 - zeros + last;
  return u;
}

} // namespace

void exact_codes(const std::vector<const double*>& parts, int last, int64_t n, int64_t divisor,
                 const Format& result, const RandomWords& words, char* codes,
                 const Recorder& seen) {
  const ExactOutput output(result, codes, words, seen, n);
  at::parallel_for(0, n, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      __int128 sum = 0;
      for (const double* part : parts) sum += in_places(part[i], last);
      output.put(i, divided(unpack_places(sum, last), static_cast<uint64_t>(divisor)));
    }
  });
  output.count();
}

// ---- running sums ----

template <typename T>
void running_step_sums(const CpuKernels& kernels, const T* values, int64_t batches, int64_t k,
                       int64_t n, const StepFormats& formats, const Accumulation& policy,
                       char* codes) {
  const int64_t width = formats.result.itemsize(), blocks = (n + kLanes - 1) / kLanes,
                all = batches * k * n;
  at::parallel_for(0, batches * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto steps = std::make_unique<SteppedSums<T>>(kernels, formats, policy);
    T sums[kLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t lane = task % blocks * kLanes, lanes = std::min(kLanes, n - lane),
                    first = task / blocks * k * n + lane;
      steps->begin(nullptr, lanes, first, all);
      for (int64_t i = 0; i < k; ++i) {
        steps->add(values + first + i * n);
        steps->finish(sums);
        encode_result(kernels, formats.result, sums, 1, codes + (first + i * n) * width, lanes,
                      steps->next_words(), formats.seen);
      }
    }
  });
}

void running_exact_sums(const double* values, int64_t batches, int64_t k, int64_t n,
                        const Format& f, const Format& result, const RandomWords& words,
                        char* codes, const Recorder& seen) {
  const ExactOutput output(result, codes, words, seen, batches * k * n);
  at::parallel_for(0, batches * n, 16, [&](int64_t begin, int64_t end) {
    ExactSum sum(f);
    for (int64_t line = begin; line < end; ++line) {
      sum.clear();
      double special = 0; // the sum of the non-finite terms so far
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = (line / n * k + i) * n + line % n;
        if (std::isfinite(values[at])) {
          sum.add(c10::formats::term_of(f, values[at]), Term{1, 0});
        } else {
          special += values[at];
        }
        output.put(at, std::isfinite(special) ? sum.value() : c10::formats::unpack(special));
      }
    }
  });
  output.count();
}

template void step_dots(const CpuKernels&, const DotOperands<float>&, const StepFormats&,
                        const Accumulation&, char*);
template void step_dots(const CpuKernels&, const DotOperands<double>&, const StepFormats&,
                        const Accumulation&, char*);
template void running_step_sums(const CpuKernels&, const float*, int64_t, int64_t, int64_t,
                                const StepFormats&, const Accumulation&, char*);
template void running_step_sums(const CpuKernels&, const double*, int64_t, int64_t, int64_t,
                                const StepFormats&, const Accumulation&, char*);

} // namespace at::formats
