// The limits of a format that torch.finfo reports, as float64.
#pragma once
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/NextCode.h>

#include <algorithm>
#include <cmath>

namespace c10::formats {

inline double value_of(const Format& f, uint64_t code) {
  return to_double(decode(f, code));
}
inline double largest(const Format& f) {
  return value_of(f, f.max_code());
}
inline double lowest(const Format& f) {
  if (f.is_table()) return value_of(f, f.table->lowest_code);
  // 0, but never -0
  return f.is_fixed()
      ? 0.0 - std::ldexp(static_cast<double>(f.lowest_magnitude()), f.lsb_exponent())
      : -largest(f);
}
// The smallest positive number, including subnormals.
inline double smallest(const Format& f) {
  if (f.is_table()) return f.table->smallest;
  const bool flushed = f.kind == Kind::Float && f.subnormals == Subnormals::Flush && f.exp_bits > 0;
  return value_of(f, flushed ? uint64_t{1} << f.man_bits : 1);
}
// The distance from 1 to the next larger number, where posits have their longest fractions. Fixed
// point: the distance of any two neighbours.
inline double epsilon(const Format& f) {
  if (f.is_table()) {
    const std::vector<double>& values = table_of(f).values;
    const auto one = std::lower_bound(values.begin(), values.end(), 1.0);
    return one != values.end() && *one == 1 && one + 1 != values.end() ? one[1] - 1 : std::nan("");
  }
  if (f.is_fixed()) return std::ldexp(1.0, f.lsb_exponent());
  const uint64_t one = encode(f, unpack(int64_t{1}));
  return value_of(f, one) == 1 && one < f.max_code() ? value_of(f, one + 1) - 1 : std::nan("");
}
// The smallest normal number. Tapered formats have no subnormals, so it is minpos; tables: the
// smallest positive value.
inline double smallest_normal(const Format& f) {
  if (f.is_table()) return f.table->smallest;
  if (f.is_takum()) return value_of(f, 1);
  return std::ldexp(1.0, f.min_exponent());
}
// Whether only 0 rounds to 0.
inline bool keeps_minpos(const Format& f) {
  return f.is_table() ? table_of(f).definition.minpos
                      : f.is_tapered() && f.underflow == Underflow::Minpos;
}
// Uniform numbers in [0, 1) are multiples of 2^-digits, rounded toward zero; in formats that keep
// minpos, smaller ones would become minpos. Those below this limit become 0 instead. Returns 0 for
// other formats.
inline double least_uniform(const Format& f, int digits) {
  return keeps_minpos(f) && f.min_exponent() > -digits ? smallest_normal(f) : 0;
}
// The largest number below x, and the smallest one from x on; NaN if there is none.
inline double number_below(Format f, double x) {
  f.rounding = Rounding::Down;
  const uint64_t code = encode(f, unpack(x));
  const double near = value_of(f, code);
  if (near < x) return near;
  const double next = value_of(
      f, f.is_table() ? next_code_of_table(f, code, false) : next_code(f, code, near, -INFINITY));
  return next < x ? next : std::nan("");
}
inline double number_from(Format f, double x) {
  f.rounding = Rounding::Up;
  const double near = value_of(f, encode(f, unpack(x)));
  return near >= x ? near : std::nan("");
}
// Whether a finite number beyond every machine type's range, or a tiny one below it, may round to
// another value than an infinity or 0 does.
inline bool tells_ends_apart(const Format& f) {
  if (f.overflow == Overflow::Wrap) return false; // would need all digits of the number
  if (sees_inexact(f.rounding)) return true;
  if (keeps_minpos(f)) return true;
  if (f.is_tapered()) return f.infinity == Infinity::Nan;
  if (!f.is_table()) return false;
  const auto ends_alike = [](const TableEnd& end, uint32_t outermost) {
    return end.infinity == (end.saturates ? outermost : end.code);
  };
  const ValueTable& t = table_of(f);
  return !ends_alike(t.definition.high, t.codes.back()) ||
      !ends_alike(t.definition.low, t.codes.front());
}
// 10^-d: around 1, the format keeps every decimal of d digits.
inline double resolution(const Format& f) {
  if (f.is_table()) return std::pow(10.0, std::ceil(std::log10(epsilon(f))));
  const int bits = f.is_fixed() ? f.frac_bits : f.significand_bits() - 1;
  const int digits = static_cast<int>(std::floor(bits * std::log10(2.0)));
  return std::pow(10.0, -digits);
}

} // namespace c10::formats
