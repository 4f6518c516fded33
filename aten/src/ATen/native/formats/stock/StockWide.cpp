#include <ATen/native/formats/stock/StockWide.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/formats/codec/FastEncode.h>

#include <cmath>
#include <limits>

namespace at::formats {
namespace {

using at::Tensor;
using c10::ScalarType;
using c10::formats::Format;
using c10::formats::Rounding;

constexpr int kFraction = 52, kBias = 1023;
constexpr int64_t kInfinityBits = int64_t{0x7ff} << kFraction;

// rounds_up() as 0 or 1. The discarded part is a half, more, or not 0.
struct Cut {
  Tensor half, over, any, odd, negative;
};
Tensor rounds_up(Rounding mode, const Cut& c, const StockWords& words) {
  switch (mode) {
    case Rounding::NearestEven:
    case Rounding::UpDown: return c.over | (c.half & c.odd);
    case Rounding::NearestZero: return c.over;
    case Rounding::NearestAway: return c.over | c.half;
    case Rounding::NearestUp: return c.over | (c.half & c.negative.logical_not());
    case Rounding::Up: return c.any & c.negative.logical_not();
    case Rounding::Down: return c.any & c.negative;
    case Rounding::ToOdd: return c.any & c.odd.logical_not();
    case Rounding::StochasticEqual: return c.any & words.coins();
    default: return at::zeros_like(c.any);
  }
}

// The mode up_down's second half: one code further from 0 or back.
Tensor move_codes(const Format& f, const Tensor& magnitude, const StockWords& words) {
  if (f.rounding != Rounding::UpDown) return magnitude;
  return magnitude + words.coins().to(ScalarType::Long).mul(2).sub(1) * magnitude.ne(0);
}

// As PositEncoder of FastEncode.h: a number's exponent and fraction, as one fixed-point number,
// are the regime, the exponent's low bits and the fraction.
Tensor encode_posits(const Format& f, const Tensor& values, const StockWords& words) {
  const Tensor u = values.view(ScalarType::Long);
  const Tensor a = u.bitwise_and(std::numeric_limits<int64_t>::max());
  const Tensor negative = u.lt(0);
  const int64_t limit = int64_t{f.max_exponent()} << kFraction;
  const Tensor b = a.sub(int64_t{kBias} << kFraction).clamp(-limit, limit);
  const int low_bits = kFraction + f.es;
  const Tensor k = b.__rshift__(low_bits);
  const Tensor tail = b.bitwise_and((int64_t{1} << low_bits) - 1).__lshift__(62 - low_bits);
  // 10 or 01, then the tail: an arithmetic shift makes the regime's run.
  const Tensor word = k.ge(0).to(ScalarType::Long).add(1).__lshift__(62) | tail;
  const Tensor run = k ^ k.__rshift__(63);
  const Tensor one = at::scalar_tensor(1, u.options());
  const Tensor lost = word & one.__lshift__(run).sub(1);
  const Tensor string = word.__rshift__(run);
  const int drop = 65 - f.bits;
  const int64_t ones = (int64_t{1} << drop) - 1, half = int64_t{1} << (drop - 1);
  const Tensor below = string.bitwise_and(ones), more = lost.ne(0);
  Tensor code = string.__rshift__(drop).bitwise_and(static_cast<int64_t>(f.sign_code() - 1));
  const Cut cut{below.eq(half) & more.logical_not(), below.gt(half) | (below.eq(half) & more),
                below.ne(0) | more, code.bitwise_and(1).ne(0), negative};
  code = code + rounds_up(f.rounding, cut, words);
  const bool to_zero = f.underflow == c10::formats::Underflow::Zero;
  if (to_zero) {
    const auto beyond = [&](bool sign) {
      return static_cast<int64_t>(
          c10::formats::gap_threshold<double>(f.rounding, sign, -f.max_exponent()));
    };
    Tensor leaves = at::where(negative, a.gt(beyond(true)), a.gt(beyond(false)));
    if (f.rounding == Rounding::StochasticEqual) leaves = words.coins() & a.gt(0);
    const int64_t minpos = (int64_t{kBias} << kFraction) - limit;
    code = at::where(a.lt(minpos), leaves.to(ScalarType::Long), code);
  }
  code = move_codes(f, code, words).clamp(to_zero ? 0 : 1, static_cast<int64_t>(f.max_code()));
  if (!f.infinity_is_nan())
    code = at::where(a.eq(kInfinityBits), static_cast<int64_t>(f.max_code()), code);
  code = code * a.ne(0);
  code = at::where(negative, code.neg(), code);
  const Tensor is_nan = f.infinity_is_nan() ? a.ge(kInfinityBits) : a.gt(kInfinityBits);
  return at::where(is_nan, static_cast<int64_t>(f.nan_code()), code)
      .bitwise_and(static_cast<int64_t>(f.code_mask()));
}

// Finds the run's length by the highest bit that differs: the exponent of such a number in float64.
// If that bit and the next one are 1, the next one is cleared, so that nothing rounds up.
Tensor decode_posits(const Format& f, const Tensor& codes) {
  const auto bits = static_cast<int64_t>(f.code_mask());
  const Tensor c = codes.to(ScalarType::Long).bitwise_and(bits);
  const Tensor negative = c.__rshift__(f.bits - 1).bitwise_and(1).ne(0);
  const Tensor word = at::where(negative, c.neg().bitwise_and(bits), c).__lshift__(65 - f.bits);
  const Tensor ones = word.__rshift__(63), run_ends = word ^ ones;
  const Tensor high = run_ends & run_ends.__rshift__(1).bitwise_not();
  const Tensor place = high.to(ScalarType::Double).view(ScalarType::Long).__rshift__(kFraction);
  const Tensor run = place.neg().add(kBias + 63).clamp(1, 62);
  const Tensor k = at::where(ones.ne(0), run.sub(1), run.neg());
  const Tensor rest = word.__lshift__(run.add(1));
  const Tensor digits =
      rest.__rshift__(12 - f.es).bitwise_and((int64_t{1} << (kFraction + f.es)) - 1);
  Tensor value =
      (k.__lshift__(f.es).add(kBias).__lshift__(kFraction) + digits).view(ScalarType::Double);
  value = at::where(negative, value.neg(), value);
  value = at::where(c.eq(0), 0.0, value);
  const auto nan = static_cast<int64_t>(f.nan_code());
  return at::where(c.eq(nan), std::numeric_limits<double>::quiet_NaN(), value);
}

// A value in units of the last place, cut and rounded to an integer.
Tensor encode_fixed(const Format& f, const Tensor& values, const StockWords& words) {
  const Tensor negative = values.signbit();
  const double most = std::ldexp(2.0, f.int_bits); // a code moved from here is beyond all codes too
  const Tensor x = values.abs().clamp_max(most);
  const Tensor scaled = x.mul(std::ldexp(1.0, f.frac_bits));
  const Tensor whole = scaled.trunc(), below = scaled - whole;
  const Tensor q = whole.to(ScalarType::Long);
  const Cut cut{below.eq(0.5), below.gt(0.5), below.gt(0) | (x.gt(0) & scaled.eq(0)),
                q.bitwise_and(1).ne(0), negative};
  const Tensor rounded = move_codes(f, q + rounds_up(f.rounding, cut, words), words);
  return fixed_codes(f, rounded, negative, values).bitwise_and(static_cast<int64_t>(f.code_mask()));
}

Tensor decode_fixed(const Format& f, const Tensor& codes) {
  const Tensor c = codes.to(ScalarType::Long).bitwise_and(static_cast<int64_t>(f.code_mask()));
  const auto sign = static_cast<int64_t>(f.sign_code());
  const Tensor number = f.is_signed ? c - c.bitwise_and(sign).mul(2) : c;
  return number.to(ScalarType::Double).mul(std::ldexp(1.0, -int{f.frac_bits}));
}

} // namespace

Tensor fixed_codes(const Format& f, const Tensor& magnitudes, const Tensor& negative,
                   const Tensor& values) {
  const Tensor code =
      at::where(negative, magnitudes.clamp_max(static_cast<int64_t>(f.lowest_magnitude())).neg(),
                magnitudes.clamp_max(static_cast<int64_t>(f.max_code())));
  return code * values.eq(values);
}

bool has_wide_way(const Format& f) {
  if (f.rounding == Rounding::Stochastic) return false;
  return f.is_posit() || (f.is_fixed() && f.overflow == c10::formats::Overflow::Saturate);
}

Tensor encode_wide_by_stock(const Format& f, const Tensor& values, const StockWords& words) {
  return f.is_posit() ? encode_posits(f, values, words) : encode_fixed(f, values, words);
}

Tensor decode_wide_by_stock(const Format& f, const Tensor& codes) {
  return f.is_posit() ? decode_posits(f, codes) : decode_fixed(f, codes);
}

} // namespace at::formats
