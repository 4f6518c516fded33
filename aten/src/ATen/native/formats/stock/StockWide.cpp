#include <ATen/native/formats/stock/StockWide.h>

#include <ATen/TensorOperators.h>
#include <ATen/native/formats/stock/StockArithmetic.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/formats/codec/FastEncode.h>

#include <algorithm>
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

// Finds the run's length by the highest bit that differs: the exponent of such a number in float64.
// If that bit and the next one are 1, the next one is cleared, so that nothing rounds up.
Tensor run_length(const Tensor& word) {
  const Tensor run_ends = word ^ word.__rshift__(63);
  const Tensor high = run_ends & run_ends.__rshift__(1).bitwise_not();
  const Tensor place = high.to(ScalarType::Double).view(ScalarType::Long).__rshift__(kFraction);
  return place.neg().add(kBias + 63).clamp(1, 62);
}

Tensor decode_posit_magnitudes(const Format& f, const Tensor& magnitudes) {
  const Tensor word = magnitudes.__lshift__(65 - f.bits), run = run_length(word);
  const Tensor k = at::where(word.lt(0), run.sub(1), run.neg());
  const Tensor rest = word.__lshift__(run.add(1));
  const Tensor digits =
      rest.__rshift__(12 - f.es).bitwise_and((int64_t{1} << (kFraction + f.es)) - 1);
  return (k.__lshift__(f.es).add(kBias).__lshift__(kFraction) + digits).view(ScalarType::Double);
}

// As takum_fields() of Takum.h.
Tensor tail_length(const Format& f, const Tensor& magnitudes, const Tensor& upwards) {
  const Tensor regime = magnitudes.__rshift__(f.bits - 5).bitwise_and(7);
  return at::where(upwards, regime, regime.bitwise_xor(7));
}

Tensor decode_takum_magnitudes(const Format& f, const Tensor& magnitudes) {
  const Tensor upwards = magnitudes.__rshift__(f.bits - 2).bitwise_and(1).ne(0);
  const Tensor r = tail_length(f, magnitudes, upwards);
  const Tensor p = r.neg().add(f.bits - 5), one = at::scalar_tensor(1, magnitudes.options());
  const Tensor power = one.__lshift__(r);
  const Tensor tail = magnitudes.__rshift__(p) & power.sub(1);
  const Tensor c = tail + at::where(upwards, power.sub(1), power.mul(-2).add(1));
  const Tensor fraction = magnitudes & one.__lshift__(p).sub(1);
  return (c.add(kBias).__lshift__(kFraction) + fraction.__lshift__(p.neg().add(kFraction)))
      .view(ScalarType::Double);
}

Tensor decode_magnitudes(const Format& f, const Tensor& magnitudes) {
  const Tensor values = f.is_posit() ? decode_posit_magnitudes(f, magnitudes)
                                     : decode_takum_magnitudes(f, magnitudes);
  return at::where(magnitudes.eq(0), 0.0, values);
}

Tensor decode_tapered(const Format& f, const Tensor& codes) {
  const auto bits = static_cast<int64_t>(f.code_mask());
  const Tensor c = codes.to(ScalarType::Long).bitwise_and(bits);
  const Tensor negative = c.__rshift__(f.bits - 1).bitwise_and(1).ne(0);
  const Tensor values = decode_magnitudes(f, at::where(negative, c.neg().bitwise_and(bits), c));
  const auto nan = static_cast<int64_t>(f.nan_code());
  return at::where(c.eq(nan), std::numeric_limits<double>::quiet_NaN(),
                   at::where(negative, values.neg(), values));
}

// The magnitude's code, cut, and the part that is cut off. a: bits of |x|.
struct CutCode {
  Tensor code;
  Cut cut;
};

// As PositEncoder of FastEncode.h: a number's exponent and fraction, as one fixed-point number,
// are the regime, the exponent's low bits and the fraction.
CutCode cut_posits(const Format& f, const Tensor& a, const Tensor& negative) {
  const int64_t limit = int64_t{f.max_exponent()} << kFraction;
  const Tensor b = a.sub(int64_t{kBias} << kFraction).clamp(-limit, limit);
  const int low_bits = kFraction + f.es;
  const Tensor k = b.__rshift__(low_bits);
  const Tensor tail = b.bitwise_and((int64_t{1} << low_bits) - 1).__lshift__(62 - low_bits);
  // 10 or 01, then the tail: an arithmetic shift makes the regime's run.
  const Tensor word = k.ge(0).to(ScalarType::Long).add(1).__lshift__(62) | tail;
  const Tensor run = k ^ k.__rshift__(63);
  const Tensor one = at::scalar_tensor(1, a.options());
  const Tensor lost = word & one.__lshift__(run).sub(1);
  const Tensor string = word.__rshift__(run);
  const int drop = 65 - f.bits;
  const int64_t ones = (int64_t{1} << drop) - 1, half = int64_t{1} << (drop - 1);
  const Tensor below = string.bitwise_and(ones), more = lost.ne(0);
  const Tensor code = string.__rshift__(drop).bitwise_and(static_cast<int64_t>(f.sign_code() - 1));
  return {code,
          {below.eq(half) & more.logical_not(), below.gt(half) | (below.eq(half) & more),
           below.ne(0) | more, code.bitwise_and(1).ne(0), negative}};
}

// As takum_head() of Takum.h, then the fraction.
CutCode cut_takums(const Format& f, const Tensor& a, const Tensor& negative) {
  const auto bits = [](int64_t exponent) { return (exponent + kBias) << kFraction; };
  const Tensor b = a.clamp(bits(f.min_exponent()), bits(f.max_exponent() + 1) - 1);
  const Tensor c = b.__rshift__(kFraction).sub(kBias), upwards = c.ge(0);
  const Tensor n = at::where(upwards, c.add(1), c.neg());
  const Tensor r = n.to(ScalarType::Double).view(ScalarType::Long).__rshift__(kFraction).sub(kBias);
  const Tensor one = at::scalar_tensor(1, a.options()), power = one.__lshift__(r);
  const Tensor tail = at::where(upwards, n - power, power.mul(2).sub(1) - n);
  const Tensor head = at::where(upwards, r.add(8), r.neg().add(7)).__lshift__(r) | tail;
  const Tensor p = r.neg().add(f.bits - 5), drop = p.neg().add(kFraction);
  const Tensor digits = b.bitwise_and((int64_t{1} << kFraction) - 1);
  const Tensor code = head.__lshift__(p) | digits.__rshift__(drop);
  const Tensor unit = one.__lshift__(drop), below = digits & unit.sub(1);
  const Tensor half = unit.__rshift__(1);
  return {code, {below.eq(half), below.gt(half), below.ne(0), code.bitwise_and(1).ne(0), negative}};
}

Tensor encode_tapered(const Format& f, const Tensor& values, const StockWords& words) {
  const Tensor u = values.view(ScalarType::Long);
  const Tensor a = u.bitwise_and(std::numeric_limits<int64_t>::max());
  const Tensor negative = u.lt(0);
  const bool to_zero = f.is_posit() && f.underflow == c10::formats::Underflow::Zero;
  const auto most = static_cast<int64_t>(f.max_code()), least = int64_t{!to_zero};
  auto [code, cut] = f.is_posit() ? cut_posits(f, a, negative) : cut_takums(f, a, negative);
  if (f.rounding != Rounding::Stochastic) code = code + rounds_up(f.rounding, cut, words);
  if (to_zero) {
    const auto beyond = [&](bool sign) {
      return static_cast<int64_t>(
          c10::formats::gap_threshold<double>(f.rounding, sign, -f.max_exponent()));
    };
    Tensor leaves = at::where(negative, a.gt(beyond(true)), a.gt(beyond(false)));
    if (f.rounding == Rounding::StochasticEqual) leaves = words.coins() & a.gt(0);
    if (f.rounding == Rounding::Stochastic) leaves = at::zeros_like(leaves);
    const int64_t minpos = int64_t{kBias - f.max_exponent()} << kFraction;
    code = at::where(a.lt(minpos), leaves.to(ScalarType::Long), code);
  }
  code = code.clamp(least, most);
  if (f.rounding == Rounding::Stochastic) {
    const Tensor x = a.view(ScalarType::Double), inner = decode_magnitudes(f, code);
    const Tensor outer = decode_magnitudes(f, code.clamp_max(most - 1).add(1));
    code = code + (draw_outer(x, inner, outer, words) & x.ge(inner) & code.lt(most));
  }
  code = move_codes(f, code, words).clamp(least, most);
  if (!f.infinity_is_nan()) code = at::where(a.eq(kInfinityBits), most, code);
  code = code * a.ne(0);
  code = at::where(negative, code.neg(), code);
  const Tensor is_nan = f.infinity_is_nan() ? a.ge(kInfinityBits) : a.gt(kInfinityBits);
  return at::where(is_nan, static_cast<int64_t>(f.nan_code()), code)
      .bitwise_and(static_cast<int64_t>(f.code_mask()));
}

// A magnitude in units of the last place: an integer modulo 2^64, and the rest.
struct Units {
  Tensor whole, below, traces, beyond; // beyond: 2^64 or more
};

Units units_of_doubles(const Format& f, const Tensor& magnitudes) {
  const Tensor scaled = magnitudes.mul(std::ldexp(1.0, f.frac_bits));
  const Tensor whole = scaled.trunc();
  const Tensor bits = scaled.view(ScalarType::Long);
  const Tensor shift = bits.__rshift__(kFraction).sub(kBias + kFraction);
  const Tensor digits =
      bits.bitwise_and((int64_t{1} << kFraction) - 1).bitwise_or(int64_t{1} << kFraction);
  const Tensor large = digits.__lshift__(shift.clamp(0, 63)) * shift.lt(64);
  return {at::where(shift.gt(0), large, whole.clamp_max(0x1p53).to(ScalarType::Long)),
          scaled - whole, magnitudes.gt(0) & scaled.eq(0), scaled.ge(0x1p64)};
}

Units units_of_integers(const Format& f, const Tensor& magnitudes) {
  const Tensor zero = at::scalar_tensor(0.0, magnitudes.options().dtype(ScalarType::Double));
  const Tensor never = zero.ne(0);
  if (f.frac_bits >= 0) {
    const int64_t high = f.frac_bits == 0 ? 0 : ~(~uint64_t{0} >> f.frac_bits);
    return {magnitudes.__lshift__(f.frac_bits), zero, never, magnitudes.bitwise_and(high).ne(0)};
  }
  const int shift = std::min(-int{f.frac_bits}, 63);
  const auto ones = static_cast<int64_t>((uint64_t{1} << shift) - 1);
  const auto kept = static_cast<int64_t>(~uint64_t{0} >> shift);
  return {magnitudes.__rshift__(shift).bitwise_and(kept),
          doubles_of(magnitudes.bitwise_and(ones)).mul(std::ldexp(1.0, -shift)), never, never};
}

// A value in units of the last place, cut and rounded to an integer.
Tensor encode_fixed(const Format& f, const Tensor& values, const StockWords& words) {
  const bool wraps = f.overflow == c10::formats::Overflow::Wrap;
  const bool integers = values.scalar_type() == ScalarType::Long;
  const Tensor negative = values.signbit();
  Tensor x = values.abs();
  // A code moved from here is beyond all codes too. If it wraps, its low bits are 0 from there on.
  if (!integers) x = x.clamp_max(wraps ? 0x1p512 : std::ldexp(2.0, f.int_bits));
  const Units n = integers ? units_of_integers(f, x) : units_of_doubles(f, x);
  Tensor q = n.whole;
  if (f.rounding == Rounding::Stochastic) {
    const Tensor zero = at::scalar_tensor(0.0, n.below.options());
    q = q + draw_outer(n.below, zero, zero.add(1), words);
  } else {
    const Cut cut{n.below.eq(0.5), n.below.gt(0.5), n.below.gt(0) | n.traces,
                  q.bitwise_and(1).ne(0), negative};
    q = q + rounds_up(f.rounding, cut, words);
  }
  if (f.rounding == Rounding::UpDown)
    q = q + words.coins().to(ScalarType::Long).mul(2).sub(1) * (q.ne(0) | n.beyond);
  Tensor code;
  if (wraps) {
    const Tensor limit =
        at::where(negative, -static_cast<int64_t>(f.lowest_magnitude()),
                  at::scalar_tensor(static_cast<int64_t>(f.max_code()), q.options()));
    code = at::where(values.isinf(), limit, at::where(negative, q.neg(), q)) * values.eq(values);
  } else {
    code = fixed_codes(f, q, negative, values);
  }
  return code.bitwise_and(static_cast<int64_t>(f.code_mask()));
}

Tensor decode_fixed(const Format& f, const Tensor& codes) {
  const Tensor c = codes.to(ScalarType::Long).bitwise_and(static_cast<int64_t>(f.code_mask()));
  const auto sign = static_cast<int64_t>(f.sign_code());
  const Tensor number = f.is_signed ? c - c.bitwise_and(sign).mul(2) : c;
  return number.to(ScalarType::Double).mul(std::ldexp(1.0, -int{f.frac_bits}));
}

} // namespace

Tensor significand_lengths(const Format& f, const Tensor& magnitudes) {
  Tensor length;
  if (f.is_posit()) {
    length = run_length(magnitudes.__lshift__(65 - f.bits)).neg().add(f.bits - 2 - f.es);
  } else {
    const Tensor upwards = magnitudes.__rshift__(f.bits - 2).bitwise_and(1).ne(0);
    length = tail_length(f, magnitudes, upwards).neg().add(f.longest_fraction());
  }
  return length.clamp_min(0) * magnitudes.ne(0);
}

// Multiples of 2^10 have at most 53 digits.
Tensor doubles_of(const Tensor& integers) {
  const Tensor low = integers.bitwise_and((1 << 10) - 1);
  return add_odd((integers ^ low).to(ScalarType::Double), low.to(ScalarType::Double));
}

Tensor fixed_codes(const Format& f, const Tensor& magnitudes, const Tensor& negative,
                   const Tensor& values) {
  const Tensor code =
      at::where(negative, magnitudes.clamp_max(static_cast<int64_t>(f.lowest_magnitude())).neg(),
                magnitudes.clamp_max(static_cast<int64_t>(f.max_code())));
  return code * values.eq(values);
}

Tensor encode_wide_by_stock(const Format& f, const Tensor& values, const StockWords& words) {
  return f.is_fixed() ? encode_fixed(f, values, words) : encode_tapered(f, values, words);
}

Tensor decode_wide_by_stock(const Format& f, const Tensor& codes) {
  return f.is_fixed() ? decode_fixed(f, codes) : decode_tapered(f, codes);
}

} // namespace at::formats
