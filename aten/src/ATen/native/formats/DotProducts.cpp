#include <ATen/native/formats/DotProducts.h>

#include <ATen/FormatRounding.h>
#include <ATen/Parallel.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/util/ExactCodec.h>
#include <c10/util/ExactSum.h>

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

constexpr int64_t kLanes = 256; // dot products that go on side by side

// Kernels by machine type.
void binary(BinaryOp op, const float* a, const float* b, float* out, int64_t n) { cpu_kernels().binary_float(op, a, b, out, n); }
void binary(BinaryOp op, const double* a, const double* b, double* out, int64_t n) { cpu_kernels().binary_double(op, a, b, out, n); }
void multiply_add(const float* a, const float* b, const float* c, float* out, int64_t n) {
  cpu_kernels().ternary_float(TernaryOp::Fma, a, b, c, 1, out, n);
}
void multiply_add(const double* a, const double* b, const double* c, double* out, int64_t n) {
  cpu_kernels().ternary_double(TernaryOp::Fma, a, b, c, 1, out, n);
}
void encode_lanes(const Format& f, const float* x, void* codes, int64_t n, const RandomWords& w) { cpu_kernels().encode_float(f, x, codes, n, w); }
void encode_lanes(const Format& f, const double* x, void* codes, int64_t n, const RandomWords& w) { cpu_kernels().encode_double(f, x, codes, n, w); }
void decode_lanes(const Format& f, const void* codes, float* x, int64_t n) { cpu_kernels().decode_float(f, codes, x, n); }
void decode_lanes(const Format& f, const void* codes, double* x, int64_t n) { cpu_kernels().decode_double(f, codes, x, n); }

Format step_format(const FormatEntry& own, const FormatEntry* chosen, const Accumulation& policy) {
  Format f = rounding_format(chosen ? *chosen : own);
  if (policy.rounding) f.rounding = *policy.rounding;
  return f;
}

// Up to kLanes sums in one format, one product of each at a time.
template <typename T>
class Steps {
 public:
  Steps(const FormatEntry& entry, const Accumulation& policy, uint64_t seed)
      : policy_(policy), chunks_in_float_(entry.compute == ScalarType::Float), product_(step_format(entry, policy.product, policy)), sum_(step_format(entry, policy.accumulator, policy)), seed_(seed) {}

  // first: the number of the first lane among all dot products, of which there are `all`: stochastic modes number their words by both.
  void begin(const T* start, int64_t n, int64_t first, int64_t all) {
    n_ = n;
    step_ = 0;
    first_ = first;
    all_ = all;
    std::fill_n(taken_, n, 0);
    std::fill_n(error_, n, T{0});
    std::fill_n(wide_, n, T{0});
    std::fill_n(acc_, n, T{0});
    if (!start) return;
    std::copy_n(start, n, chunked() ? wide_ : acc_);
    if (!chunked()) round(sum_, acc_);
  }

  // present: which lanes have this term, or nullptr.
  void add_product(T a, const T* b, const uint8_t* present) {
    keep(present);
    std::fill_n(factor_, n_, a);
    if (policy_.fused) {
      multiply_add(factor_, b, acc_, next_, n_);
      if (sum_.rounding == Rounding::Down) {
        sign_zeros(next_, [&](int64_t i) { return std::signbit(a) == std::signbit(b[i]) && !std::signbit(acc_[i]); });
      }
      round(sum_, next_);
      std::copy_n(next_, n_, acc_);
    } else {
      binary(BinaryOp::Mul, factor_, b, term_, n_);
      round(product_, term_);
      add_term();
    }
    after_term(present);
  }

  void add(const T* b) {
    std::copy_n(b, n_, term_);
    add_term();
    after_term(nullptr);
  }

  void finish(T* out) const {
    for (int64_t i = 0; i < n_; ++i) out[i] = chunked() ? joined(wide_[i], acc_[i]) : acc_[i];
  }
  // The words for rounding the sums once more.
  RandomWords next_words() { return {seed_, static_cast<uint64_t>(step_++ * all_ + first_)}; }

 private:
  bool chunked() const { return policy_.kind == Accumulation::Kind::Chunked; }

  // Chunks are added in the machine's type, whatever the steps are done in.
  T joined(T wide, T chunk) const { return chunks_in_float_ ? static_cast<T>(static_cast<float>(wide + chunk)) : wide + chunk; }

  void round(const Format& f, T* x) {
    encode_lanes(f, x, codes_, n_, next_words());
    decode_lanes(f, codes_, x, n_);
  }

  // Rounding down, a sum that is 0 is -0 unless both terms are positive (IEEE 754-2019, section 6.3).
  template <typename BothPositive>
  void sign_zeros(T* sums, BothPositive both_positive) {
    for (int64_t i = 0; i < n_; ++i) {
      if (sums[i] == 0) sums[i] = both_positive(i) ? T{0} : -T{0};
    }
  }

  // out, which is neither a nor b: a + b or a - b, rounded.
  void sum_of(BinaryOp op, const T* a, const T* b, T* out) {
    binary(op, a, b, out, n_);
    if (sum_.rounding == Rounding::Down) {
      sign_zeros(out, [&](int64_t i) { return !std::signbit(a[i]) && std::signbit(b[i]) == (op == BinaryOp::Sub); });
    }
    round(sum_, out);
  }

  void add_term() {
    if (!policy_.kahan) {
      sum_of(BinaryOp::Add, acc_, term_, next_);
      std::copy_n(next_, n_, acc_);
      return;
    }
    sum_of(BinaryOp::Sub, term_, error_, factor_); // the term, corrected
    sum_of(BinaryOp::Add, acc_, factor_, next_);
    sum_of(BinaryOp::Sub, next_, acc_, term_); // what of it arrived
    sum_of(BinaryOp::Sub, term_, factor_, error_);
    std::copy_n(next_, n_, acc_);
  }

  void keep(const uint8_t* present) {
    if (!present) return;
    std::copy_n(acc_, n_, kept_acc_);
    std::copy_n(error_, n_, kept_error_);
  }

  void after_term(const uint8_t* present) {
    for (int64_t i = 0; present && i < n_; ++i) {
      acc_[i] = present[i] ? acc_[i] : kept_acc_[i];
      error_[i] = present[i] ? error_[i] : kept_error_[i];
    }
    for (int64_t i = 0; chunked() && i < n_; ++i) {
      if ((present && !present[i]) || ++taken_[i] < policy_.chunk) continue;
      wide_[i] = joined(wide_[i], acc_[i]);
      acc_[i] = error_[i] = 0;
      taken_[i] = 0;
    }
  }

  const Accumulation& policy_;
  bool chunks_in_float_;
  Format product_, sum_;
  uint64_t seed_;
  int64_t n_{0}, step_{0}, first_{0}, all_{0};
  int64_t taken_[kLanes]; // terms in the chunk so far
  alignas(64) T acc_[kLanes], term_[kLanes], error_[kLanes], next_[kLanes], wide_[kLanes], factor_[kLanes], kept_acc_[kLanes], kept_error_[kLanes];
  alignas(64) char codes_[kLanes * 8];
};

// A seed where any of the formats that are rounded to needs one.
uint64_t seed_for(const FormatEntry& entry, const Accumulation& policy) {
  using c10::formats::is_stochastic;
  const bool steps = is_stochastic(step_format(entry, policy.product, policy).rounding) ||
      is_stochastic(step_format(entry, policy.accumulator, policy).rounding);
  return steps || is_stochastic(rounding_format(entry).rounding) ? next_seed() : 0;
}

template <typename T>
void encode_result(const Format& f, T* sums, int64_t divisor, char* codes, int64_t n, const RandomWords& words) {
  if (divisor != 1) {
    T divisors[kLanes];
    std::fill_n(divisors, n, static_cast<T>(divisor));
    binary(BinaryOp::Div, sums, divisors, sums, n);
  }
  encode_lanes(f, sums, codes, n, words);
}

template <typename T>
void stepwise(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  const Format format = rounding_format(entry);
  const int64_t m = dots.a.defined() ? dots.a.size(1) : 1, k = dots.b.size(1), n = dots.b.size(2), all = dots.b.size(0) * m * n;
  const T* a = dots.a.defined() ? dots.a.const_data_ptr<T>() : nullptr;
  const T* b = dots.b.const_data_ptr<T>();
  const T* start = dots.start.defined() ? dots.start.const_data_ptr<T>() : nullptr;
  const uint8_t* present = dots.present.defined() ? dots.present.const_data_ptr<uint8_t>() : nullptr;
  const uint8_t* present_rows = dots.present_rows.defined() ? dots.present_rows.const_data_ptr<uint8_t>() : nullptr;
  char* codes = static_cast<char*>(out.mutable_data_ptr());
  const int64_t width = format.itemsize(), blocks = (n + kLanes - 1) / kLanes;
  const uint64_t seed = seed_for(entry, policy);
  at::parallel_for(0, dots.b.size(0) * m * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto steps = std::make_unique<Steps<T>>(entry, policy, seed);
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
      encode_result(format, sums, dots.divisor, codes + place * width, lanes, steps->next_words());
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
    TORCH_CHECK(f.arithmetic_in_double(), "accumulate: expected formats whose arithmetic float64 can do (at most 51 significant bits, products within its "
                "exponents) for sums rounded at every step, but got ", name, ". Use accumulate(\"exact\") or accumulate(\"float64\").");
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
    const at::Tensor other = dot_products({turned(dots.b), turned(dots.a), turned(dots.start), turned(dots.present_rows), turned(dots.present), dots.divisor}, entry, policy);
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
  const Format format = rounding_format(entry);
  const int64_t k = b.size(1), n = b.size(2), width = format.itemsize(), blocks = (n + kLanes - 1) / kLanes, all = b.numel();
  const T* values = b.const_data_ptr<T>();
  char* codes = static_cast<char*>(out.mutable_data_ptr());
  const uint64_t seed = seed_for(entry, policy);
  at::parallel_for(0, b.size(0) * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto steps = std::make_unique<Steps<T>>(entry, policy, seed);
    T sums[kLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t lane = task % blocks * kLanes, lanes = std::min(kLanes, n - lane), first = task / blocks * k * n + lane;
      steps->begin(nullptr, lanes, first, all);
      for (int64_t i = 0; i < k; ++i) {
        steps->add(values + first + i * n);
        steps->finish(sums);
        encode_lanes(format, sums, codes + (first + i * n) * width, lanes, steps->next_words());
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
