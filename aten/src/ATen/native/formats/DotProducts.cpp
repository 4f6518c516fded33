#include <ATen/native/formats/DotProducts.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/StepSums.h>
#include <c10/formats/ExactCodec.h>
#include <c10/formats/ExactSum.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10::formats::ExactSum;
using c10::formats::Term;
using c10::formats::Unpacked;

template <typename T>
void encode_result(const Format& f, T* sums, int64_t divisor, char* codes, int64_t n, const RandomWords& words) {
  if (divisor != 1) {
    T divisors[kLanes];
    std::fill_n(divisors, n, static_cast<T>(divisor));
    cpu_kernels().binary(BinaryOp::Div, sums, divisors, sums, n);
  }
  cpu_kernels().encode(f, sums, codes, n, words);
}

template <typename T>
void stepwise(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  const StepFormats formats(entry, policy);
  const int64_t m = dots.a.defined() ? dots.a.size(1) : 1, k = dots.b.size(1), n = dots.b.size(2), all = dots.b.size(0) * m * n;
  const T* a = dots.a.defined() ? dots.a.const_data_ptr<T>() : nullptr;
  const T* b = dots.b.const_data_ptr<T>();
  const T* start = dots.start.defined() ? dots.start.const_data_ptr<T>() : nullptr;
  const uint8_t* present = dots.present.defined() ? dots.present.const_data_ptr<uint8_t>() : nullptr;
  const uint8_t* present_rows = dots.present_rows.defined() ? dots.present_rows.const_data_ptr<uint8_t>() : nullptr;
  char* codes = static_cast<char*>(out.mutable_data_ptr());
  const int64_t width = formats.result.itemsize(), blocks = (n + kLanes - 1) / kLanes;
  at::parallel_for(0, dots.b.size(0) * m * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto steps = std::make_unique<Steps<T>>(formats, policy);
    T sums[kLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, batch = row / m, lane = task % blocks * kLanes, lanes = std::min(kLanes, n - lane);
      const int64_t place = row * n + lane;
      steps->begin(start ? start + place : nullptr, lanes, place, all);
      for (int64_t i = 0; i < k; ++i) {
        if (present_rows && !present_rows[row * k + i]) continue;
        const int64_t at = (batch * k + i) * n + lane;
        const T* line = b + at;
        if (a) {
          steps->add_product(a[row * k + i], line, present ? present + at : nullptr);
        } else {
          steps->add(line);
        }
      }
      steps->finish(sums);
      encode_result(formats.result, sums, dots.divisor, codes + place * width, lanes, steps->next_words());
    }
  });
}

// ---- exact ----

// A matrix's rows as terms, and what is not finite in them.
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

// The sum as IEEE arithmetic has it where operands are infinite or NaN; 0 where all are finite.
double special_sum(const double* a, const double* b, const uint8_t* present, int64_t k, double start) {
  double sum = std::isfinite(start) ? 0 : start;
  for (int64_t i = 0; i < k; ++i) {
    if (present && !present[i]) continue;
    const double x = a ? a[i] : 1, y = b[i];
    if (!std::isfinite(x) || !std::isfinite(y)) sum += (std::isfinite(x) ? (x > 0) - (x < 0) : x) * (std::isfinite(y) ? (y > 0) - (y < 0) : y);
  }
  return sum;
}

// One code, and its random word.
struct ExactOutput {
  Format format;
  char* codes;
  RandomWords words;

  void put(int64_t at, const Unpacked& u) const {
    const uint64_t random = c10::formats::is_stochastic(format.rounding) ? c10::formats::random_word(words.seed, at) : 0;
    const uint64_t code = c10::formats::encode(format, u, random);
    std::memcpy(codes + at * format.itemsize(), &code, format.itemsize()); // little-endian: its low bytes come first
  }
};

void exact(const DotProducts& dots, const FormatEntry& entry, const at::Tensor& out) {
  const Format& f = entry.format;
  const int64_t m = dots.a.defined() ? dots.a.size(1) : 1, k = dots.b.size(1), n = dots.b.size(2), batches = dots.b.size(0);
  const at::Tensor columns = dots.b.transpose(1, 2).contiguous(); // [batch, n, k]
  const at::Tensor present = dots.present.defined() ? dots.present.transpose(1, 2).contiguous() : dots.present;
  const double* a = dots.a.defined() ? dots.a.const_data_ptr<double>() : nullptr;
  const double* b = columns.const_data_ptr<double>();
  const double* start = dots.start.defined() ? dots.start.const_data_ptr<double>() : nullptr;
  const uint8_t* there = present.defined() ? present.const_data_ptr<uint8_t>() : nullptr; // a finite term that is not there is 0
  const Terms left(f, a, a ? batches * m * k : 0), right(f, b, batches * n * k);
  const Term one{1, 0};
  const bool narrow = f.significand_bits() <= 15, all_finite = left.finite && right.finite;
  const Format rounded = rounding_format(entry);
  const ExactOutput output{rounded, static_cast<char*>(out.mutable_data_ptr()), next_words(rounded)};
  at::parallel_for(0, batches * m, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, n * k)), [&](int64_t begin, int64_t end) {
    ExactSum sum(f);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch = row / m;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = row * n + j, column = (batch * n + j) * k;
        const Term *x = a ? left.terms.data() + row * k : nullptr, *y = right.terms.data() + column;
        if (!all_finite || (start && !std::isfinite(start[at]))) {
          const double special = special_sum(a ? a + row * k : nullptr, b + column, there ? there + column : nullptr, k, start ? start[at] : 0);
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
}

bool in_float(const FormatEntry& entry, const Accumulation& policy) {
  const bool all = rounding_format(entry).arithmetic_in_float() && step_format(entry, policy.product, policy).arithmetic_in_float() &&
      step_format(entry, policy.accumulator, policy).arithmetic_in_float();
  return all && !(policy.fused && step_format(entry, policy.accumulator, policy).significand_bits() > 12);
}

} // namespace

c10::ScalarType dot_type(const FormatEntry& entry, const Accumulation& policy) {
  return policy.kind != Accumulation::Kind::Exact && in_float(entry, policy) ? ScalarType::Float : ScalarType::Double;
}

static void expect_steps(const FormatEntry& entry, const Accumulation& policy) {
  for (const FormatEntry* chosen : {static_cast<const FormatEntry*>(nullptr), policy.product, policy.accumulator}) {
    const Format f = step_format(entry, chosen, policy);
    const std::string& name = (chosen ? *chosen : entry).name;
    TORCH_CHECK(f.arithmetic_in_double(),
                "accumulate: expected formats whose arithmetic float64 can do (at most 51 significant bits, products within its "
                "exponents) for sums rounded at every step, but got ",
                name, ". Use accumulate(\"exact\") or accumulate(\"float64\").");
    TORCH_CHECK(!chosen || chosen == &entry || f.overflow != c10::formats::Overflow::Wrap,
                "accumulate: expected a product or accumulator format that does not wrap, for operands of another format, but got ", name);
  }
}

at::Tensor dot_products(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy) {
  const int64_t m = dots.a.defined() ? dots.a.size(1) : 1;
  at::Tensor out = empty_format({dots.b.size(0), m, dots.b.size(2)}, entry, dots.b.device());
  if (dots.b.device().is_meta() || out.numel() == 0) return out;
  TORCH_CHECK(dots.b.size(1) < ExactSum::kMaxProducts, "expected dot products of less than 2^30 terms, but got ", dots.b.size(1));
  if (policy.kind == Accumulation::Kind::Exact) {
    exact(dots, entry, out);
    return out;
  }
  expect_steps(entry, policy);
  if (dots.a.defined() && dots.b.size(2) < 16 && m > dots.b.size(2)) {
    // Few columns: lanes run over the rows instead. A product does not mind which factor comes first.
    const auto turned = [](const at::Tensor& t) { return t.defined() ? t.transpose(1, 2).contiguous() : t; };
    const at::Tensor other = dot_products(
        {turned(dots.b), turned(dots.a), turned(dots.start), turned(dots.present_rows), turned(dots.present), dots.divisor}, entry, policy);
    return format_alias(bits_alias(other).transpose(1, 2).contiguous(), entry);
  }
  if (dots.b.scalar_type() == ScalarType::Float) {
    stepwise<float>(dots, entry, policy, out);
  } else {
    stepwise<double>(dots, entry, policy, out);
  }
  return out;
}

template <typename T>
static void running_steps(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  const StepFormats formats(entry, policy);
  const int64_t k = b.size(1), n = b.size(2), width = formats.result.itemsize(), blocks = (n + kLanes - 1) / kLanes, all = b.numel();
  const T* values = b.const_data_ptr<T>();
  char* codes = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, b.size(0) * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto steps = std::make_unique<Steps<T>>(formats, policy);
    T sums[kLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t lane = task % blocks * kLanes, lanes = std::min(kLanes, n - lane), first = task / blocks * k * n + lane;
      steps->begin(nullptr, lanes, first, all);
      for (int64_t i = 0; i < k; ++i) {
        steps->add(values + first + i * n);
        steps->finish(sums);
        cpu_kernels().encode(formats.result, sums, codes + (first + i * n) * width, lanes, steps->next_words());
      }
    }
  });
}

at::Tensor running_sums(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy) {
  at::Tensor out = empty_format(b.sizes(), entry, b.device());
  if (b.device().is_meta() || out.numel() == 0) return out;
  if (policy.kind != Accumulation::Kind::Exact) {
    expect_steps(entry, policy);
    b.scalar_type() == ScalarType::Float ? running_steps<float>(b, entry, policy, out) : running_steps<double>(b, entry, policy, out);
    return out;
  }
  const Format rounded = rounding_format(entry);
  const ExactOutput output{rounded, static_cast<char*>(out.mutable_data_ptr()), next_words(rounded)};
  const double* values = b.const_data_ptr<double>();
  const int64_t k = b.size(1), n = b.size(2);
  at::parallel_for(0, b.size(0) * n, 16, [&](int64_t begin, int64_t end) {
    ExactSum sum(entry.format);
    for (int64_t line = begin; line < end; ++line) {
      sum.clear();
      double special = 0; // of what was not finite so far
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = (line / n * k + i) * n + line % n;
        if (std::isfinite(values[at])) {
          sum.add(c10::formats::term_of(entry.format, values[at]), Term{1, 0});
        } else {
          special += values[at];
        }
        output.put(at, std::isfinite(special) ? sum.value() : c10::formats::unpack(special));
      }
    }
  });
  return out;
}

} // namespace at::formats
