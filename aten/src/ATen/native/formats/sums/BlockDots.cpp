#include <ATen/native/formats/sums/BlockDots.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/cpu/BlockKernel.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace at::formats {
namespace {

// One factor of each product of a sum: terms for exact arithmetic, and the numbers themselves if
// some are not finite.
class Factors {
 public:
  void gather(const double* values, const uint8_t* present, int64_t k, int64_t stride,
              int low_exponent) {
    terms_.assign(k, {});
    values_.assign(k, 0);
    there_.assign(k, 1);
    finite_ = true;
    for (int64_t i = 0; i < k; ++i) {
      const double x = values[i * stride];
      there_[i] = !present || present[i * stride];
      if (!there_[i]) continue;
      values_[i] = x;
      finite_ &= std::isfinite(x);
      if (std::isfinite(x)) terms_[i] = block_term(x, low_exponent);
    }
  }
  const BlockTerm* terms() const { return terms_.data(); }
  bool finite() const { return finite_; }
  bool there(int64_t i) const { return there_[i]; }
  double value(int64_t i) const { return values_[i]; }

 private:
  std::vector<BlockTerm> terms_;
  std::vector<double> values_;
  std::vector<uint8_t> there_;
  bool finite_{true};
};

double special_terms(const Factors* x, const Factors& y, int64_t from, int64_t to) {
  if ((!x || x->finite()) && y.finite()) return 0;
  double sum = 0;
  for (int64_t i = from; i < to; ++i) {
    if ((!x || x->there(i)) && y.there(i))
      sum += c10::formats::special_product(x ? x->value(i) : 1, y.value(i));
  }
  return sum;
}

// Adds the products from, ... to - 1, at most one block, to a register.
void add_block(BlockRegister& reg, const Factors* x, const Factors& y, int64_t from, int64_t to) {
  reg.add(TermPairs{x ? x->terms() + from : nullptr, y.terms() + from}, to - from,
          special_terms(x, y, from, to));
}

// The machine type of lanes, for the formats, registers and modes that BlockKernel.cpp takes.
enum class Lanes : uint8_t { None, Float, Double };

Lanes lanes_for(const BlockJob& job, const Recorder& seen) {
  if (seen) return Lanes::None; // lanes have no exact sums to count
  using c10::formats::Kind;
  const BlockAdder& adder = job.adder;
  const BlockSum& s = adder.sum;
  const Format& r = adder.reg;
  const bool mode = r.rounding == Rounding::TowardZero || r.rounding == Rounding::NearestEven;
  const bool plain = r.specials == c10::formats::Specials::Ieee &&
      r.overflow == c10::formats::Overflow::Ieee &&
      r.subnormals == c10::formats::Subnormals::Gradual && r.man_bits <= 50 &&
      r.min_exponent() >= -900 && r.max_exponent() <= 900;
  if (s.interleave > (s.late ? 2 : 1) || s.align != Rounding::TowardZero || !mode || !plain ||
      adder.bits > 29)
    return Lanes::None;
  if ((s.product_limit && !s.late) || s.min_exponent.value_or(0) > 60 ||
      s.min_exponent.value_or(0) < -490)
    return Lanes::None;
  // float64 adds two numbers of so many bits exactly.
  if (s.late && (r.max_exponent() > 200 || adder.late_bits() > 51)) return Lanes::None;
  Lanes lanes = job.wide_start ? Lanes::Double : Lanes::Float;
  for (const Format* f : {&job.left, &job.right}) {
    // No sum has a smaller exponent than the smallest product, and nothing is cut off below that.
    const int digits = f->significand_bits(), high = f->max_exponent(), low = f->min_exponent();
    if ((f->kind != Kind::Float && f->kind != Kind::Posit) || low > 0 || adder.bits < digits - 1)
      return Lanes::None;
    if (digits <= 12 && high <= 30 && low >= -31) continue;
    if (digits > 26 || high > 200 || low < -200) return Lanes::None;
    lanes = Lanes::Double;
  }
  return lanes;
}

BlockSettings settings_of(const BlockJob& job) {
  const BlockAdder& adder = job.adder;
  int smallest = job.left.min_exponent() + job.right.min_exponent();
  if (job.wide_start) smallest = std::min(smallest, adder.reg.min_exponent());
  return {
      .terms = adder.sum.terms,
      .bits = adder.bits,
      .man_bits = adder.reg.man_bits,
      .low = adder.reg.min_exponent(),
      .high = adder.reg.max_exponent(),
      .least = adder.sum.late ? adder.sum.min_exponent.value_or(-490)
                              : std::max(adder.sum.min_exponent.value_or(smallest), smallest),
      .nearest = adder.reg.rounding == Rounding::NearestEven,
      .group = int64_t{1} << (29 - adder.bits),
      .late = adder.sum.late.has_value(),
      .late_bits = adder.sum.late ? adder.late_bits() : 0,
      .interleave = adder.sum.interleave,
      .none = job.left.min_exponent() + job.right.min_exponent() - 1,
  };
}

// A matrix as the kernel takes it. Numbers that are not finite are 0 here, and counted by row or
// column.
template <typename T>
struct Prepared {
  std::vector<T> values;
  std::vector<int16_t> exponents;

  Prepared(const double* x, const uint8_t* present, int64_t n, int low_exponent)
      : values(n),
        exponents(n, kZeroExponent) {
    at::parallel_for(0, n, 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (x[i] == 0 || !std::isfinite(x[i]) || (present && !present[i])) continue;
        values[i] = static_cast<T>(x[i]);
        const int e = int(c10::formats::double_bits(x[i]) >> 52 & 0x7ff) - 1023;
        exponents[i] = static_cast<int16_t>(std::max(e, low_exponent));
      }
    });
  }
};

std::vector<uint8_t> not_finite(const double* x, const uint8_t* present, int64_t n, int64_t inner) {
  std::vector<uint8_t> found(inner ? (n + inner - 1) / inner : 0);
  for (int64_t i = 0; i < n; ++i)
    found[i / inner] |= !std::isfinite(x[i]) && (!present || present[i]);
  return found;
}

void put(const CpuKernels& kernels, const BlockResult& result, double* sums, int64_t divisor,
         char* codes, int64_t place, int64_t n, uint64_t words) {
  if (divisor != 1) {
    const std::vector<double> divisors(n, static_cast<double>(divisor));
    kernels.binary(BinaryOp::Div, sums, divisors.data(), sums, n);
  }
  char* at = codes + place * result.format.itemsize();
  kernels.encode(result.format, sums, at, n, {result.seed, words + place});
  if (result.seen) result.seen.codes(sums, at, n);
}

// Computes one element of the result by the generic path.
class Elements {
 public:
  Elements(const DotOperands<double>& dots, const BlockAdder& adder, uint64_t seed)
      : dots_(dots),
        adder_(adder),
        register_(adder, seed) {}

  double at(int64_t row, int64_t column) {
    const int64_t k = dots_.k, n = dots_.n, batch = row / dots_.m;
    if (dots_.a && row != row_) {
      x_.gather(dots_.a + row * k, dots_.present_rows ? dots_.present_rows + row * k : nullptr, k,
                1, adder_.low_left);
      row_ = row;
    }
    const int64_t first = batch * k * n + column;
    y_.gather(dots_.b + first, dots_.present ? dots_.present + first : nullptr, k, n,
              adder_.low_right);
    const int64_t place = row * n + column;
    register_.begin(dots_.start ? dots_.start[place] : 0, place, dots_.batches * dots_.m * n);
    for (int64_t from = 0; from < k; from += adder_.sum.terms) {
      add_block(register_, dots_.a ? &x_ : nullptr, y_, from, std::min(k, from + adder_.sum.terms));
    }
    return register_.value();
  }

 private:
  const DotOperands<double>& dots_;
  const BlockAdder& adder_;
  BlockRegister register_;
  Factors x_, y_;
  int64_t row_{-1};
};

// The index of the first word for the sums' last roundings, behind those of the registers.
uint64_t last_words(const BlockAdder& adder, int64_t k, int64_t all) {
  return static_cast<uint64_t>((k + adder.sum.terms - 1) / adder.sum.terms + 1) *
      static_cast<uint64_t>(all);
}

template <typename T>
void dots_in_lanes(const CpuKernels& kernels, const DotOperands<double>& dots, const BlockJob& job,
                   char* codes) {
  const BlockAdder& adder = job.adder;
  const BlockResult& result = job.result;
  const int64_t m = dots.m, k = dots.k, n = dots.n, blocks = (n + kBlockLanes - 1) / kBlockLanes;
  const Prepared<T> b(dots.b, dots.present, dots.batches * k * n, adder.low_right);
  const std::vector<double> ones(dots.a ? 0 : dots.batches * k, 1.0);
  const double* left = dots.a ? dots.a : ones.data();
  const Prepared<T> a(left, dots.present_rows, dots.batches * m * k, adder.low_left);
  const std::vector<uint8_t> odd_rows =
                                 not_finite(left, dots.present_rows, dots.batches * m * k, k),
                             odd_lines = not_finite(dots.b, dots.present, dots.batches * k * n, n);
  std::vector<uint8_t> odd_columns(dots.batches * n);
  for (int64_t line = 0; line < dots.batches * k; ++line) {
    for (int64_t j = 0; odd_lines[line] && j < n; ++j) {
      const int64_t at = line * n + j;
      odd_columns[line / k * n + j] |=
          !std::isfinite(dots.b[at]) && (!dots.present || dots.present[at]);
    }
  }
  const BlockSettings settings = settings_of(job);
  const BlockKernels& lanes = block_kernels(kernels.name);
  // Rows of a batch follow each other, so that the columns stay in cache.
  at::parallel_for(0, dots.batches * m * blocks, 1, [&](int64_t begin, int64_t end) {
    Elements elements(dots, adder, result.seed.number);
    double sums[kBlockLanes];
    uint8_t redo[kBlockLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / (m * blocks), row = batch * m + task % m,
                    lane = task / m % blocks * kBlockLanes;
      const int64_t count = std::min(kBlockLanes, n - lane), place = row * n + lane,
                    column = batch * k * n + lane;
      for (int64_t j = 0; j < count; ++j) {
        BlockRegister reg(adder, 0);
        reg.begin(dots.start ? dots.start[place + j] : 0, 0, 0);
        redo[j] = !std::isfinite(reg.value()) || odd_columns[batch * n + lane + j] ||
            (k && odd_rows[row]);
        sums[j] = redo[j] ? 0 : reg.value();
      }
      lanes.row(settings,
                BlockRow<T>{k, count, n, a.values.data() + row * k, a.exponents.data() + row * k,
                            b.values.data() + column, b.exponents.data() + column, sums, redo});
      for (int64_t j = 0; j < count; ++j) {
        if (redo[j]) sums[j] = elements.at(row, lane + j);
      }
      put(kernels, result, sums, dots.divisor, codes, place, count,
          last_words(adder, k, dots.batches * m * n));
    }
  });
}

} // namespace

void block_dots(const CpuKernels& kernels, const DotOperands<double>& dots, const BlockJob& job,
                char* codes) {
  const BlockAdder& adder = job.adder;
  const BlockResult& result = job.result;
  const Recorder seen = step_recorder(adder.reg);
  switch (lanes_for(job, seen)) {
    case Lanes::Float: return dots_in_lanes<float>(kernels, dots, job, codes);
    case Lanes::Double: return dots_in_lanes<double>(kernels, dots, job, codes);
    case Lanes::None: break;
  }
  // A column's terms are unpacked once for all rows.
  const int64_t m = dots.m, k = dots.k, n = dots.n, rows = dots.batches * m;
  std::vector<Factors> left(dots.a ? rows : 0);
  for (int64_t row = 0; dots.a && row < rows; ++row) {
    left[row].gather(dots.a + row * k, dots.present_rows ? dots.present_rows + row * k : nullptr, k,
                     1, adder.low_left);
  }
  std::vector<double> sums(rows * n);
  at::parallel_for(0, dots.batches * n, 1, [&](int64_t begin, int64_t end) {
    BlockRegister reg(adder, result.seed.number, &seen);
    Factors y;
    for (int64_t column = begin; column < end; ++column) {
      const int64_t batch = column / n, first = batch * k * n + column % n;
      y.gather(dots.b + first, dots.present ? dots.present + first : nullptr, k, n,
               adder.low_right);
      for (int64_t row = batch * m; row < (batch + 1) * m; ++row) {
        const int64_t place = row * n + column % n;
        reg.begin(dots.start ? dots.start[place] : 0, place, rows * n, dots.start != nullptr);
        for (int64_t from = 0; from < k; from += adder.sum.terms) {
          add_block(reg, dots.a ? &left[row] : nullptr, y, from,
                    std::min(k, from + adder.sum.terms));
        }
        sums[place] = reg.value();
      }
    }
  });
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      put(kernels, result, sums.data() + row * n, dots.divisor, codes, row * n, n,
          last_words(adder, k, rows * n));
    }
  });
}

void running_block_sums(const CpuKernels& kernels, const double* values, int64_t batches, int64_t k,
                        int64_t n, const BlockJob& job, char* codes) {
  const BlockAdder& adder = job.adder;
  const BlockResult& result = job.result;
  const Recorder seen = step_recorder(adder.reg);
  at::parallel_for(0, batches * n, 1, [&](int64_t begin, int64_t end) {
    BlockRegister full(adder, result.seed.number, &seen), part = full;
    Factors y;
    for (int64_t line = begin; line < end; ++line) {
      const int64_t first = line / n * k * n + line % n;
      y.gather(values + first, nullptr, k, n, adder.low_right);
      full.begin(0, first, batches * k * n, /*counts=*/false);
      for (int64_t i = 0; i < k; ++i) {
        // The sum so far: whole blocks, and the terms of the next block up to here.
        const int64_t from = i / adder.sum.terms * adder.sum.terms;
        part.assign(full);
        add_block(part, nullptr, y, from, i + 1);
        double sum = part.value();
        put(kernels, result, &sum, 1, codes, first + i * n, 1,
            last_words(adder, k, batches * k * n));
        if (i + 1 - from == adder.sum.terms) full.assign(part);
      }
    }
  });
}

} // namespace at::formats
