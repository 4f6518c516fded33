// What torch.finfo says of a format, as float64.
#pragma once
#include <c10/formats/ExactCodec.h>

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
  return f.is_fixed() ? 0.0 - std::ldexp(static_cast<double>(f.lowest_magnitude()), f.lsb_exponent()) : -largest(f); // 0, and not -0
}
// The distance from 1 to the next larger number: posits' fractions are longest there. Fixed point: between any two neighbours.
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
// Posits and takums have no subnormals: minpos. Nor have tables: their smallest positive value.
inline double smallest_normal(const Format& f) {
  if (f.is_table()) return f.table->smallest;
  if (f.is_takum()) return value_of(f, 1);
  return std::ldexp(1.0, f.min_exponent());
}
// 10^-d, where every decimal of d digits survives the format around 1.
inline double resolution(const Format& f) {
  if (f.is_table()) return std::pow(10.0, std::ceil(std::log10(epsilon(f))));
  const int bits = f.is_fixed() || f.is_takum() ? f.man_bits : f.significand_bits() - 1;
  const int digits = static_cast<int>(std::floor(bits * std::log10(2.0)));
  return std::pow(10.0, -digits);
}

} // namespace c10::formats
