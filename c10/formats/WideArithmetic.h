// + - * / sqrt fma for formats that float64 arithmetic cannot serve (more than 51 significand bits, or exponents up to float64's own):
// in long double, rounded to odd and encoded by the generic codec. For the host only, and slow: correctness is all it is for.
//
// long double must have 55 significand bits or more and a wider exponent range than float64 (x86: 64 bits; most other Unixes: 113).
// Source of the method: see OddArithmetic.h.
#pragma once
#include <c10/formats/Unpacked.h>

#include <cmath>
#include <limits>

namespace c10::formats {

static_assert(std::numeric_limits<long double>::digits >= 55 && std::numeric_limits<long double>::max_exponent > 4 * 1024,
              "wide formats need a long double wider than double");

// The 64 leading bits of a finite number that is not 0, the rest of them sticky.
inline Unpacked unpack_wide(long double x) {
  Unpacked u;
  u.negative = std::signbit(x);
  if (std::isnan(x)) {
    u.cls = Class::NaN;
  } else if (std::isinf(x)) {
    u.cls = Class::Infinite;
  } else if (x != 0) {
    int exponent = 0;
    const long double scaled = std::ldexp(std::frexp(std::fabs(x), &exponent), 64);
    u.cls = Class::Finite;
    u.significand = static_cast<uint64_t>(scaled);
    u.sticky = scaled != static_cast<long double>(u.significand);
    u.exponent = exponent - 1;
  }
  return u;
}

// s and the sign of what it misses: between two numbers of 64 bits, "not exact" is all that a later rounding must know.
inline Unpacked unpack_missing(long double s, long double missing) {
  if (missing == 0 || !std::isfinite(s) || !std::isfinite(missing)) return unpack_wide(s);
  const bool inwards = (missing < 0) != std::signbit(s);
  Unpacked u = unpack_wide(inwards ? std::nextafter(s, 0.0L) : s);
  u.sticky = true;
  return u;
}

inline long double two_sum_error(long double a, long double b, long double s) {
  const long double b_part = s - a;
  return (a - (s - b_part)) + (b - b_part);
}

inline Unpacked add_wide(long double a, long double b) {
  const long double s = a + b;
  return unpack_missing(s, two_sum_error(a, b, s));
}
inline Unpacked multiply_wide(long double a, long double b) {
  const long double p = a * b;
  return unpack_missing(p, std::fma(a, b, -p));
}
inline Unpacked divide_wide(long double a, long double b) {
  const long double q = a / b;
  const long double remainder = std::fma(-q, b, a);
  return unpack_missing(q, std::signbit(b) ? -remainder : remainder);
}
inline Unpacked sqrt_wide(long double a) {
  const long double s = std::sqrt(a);
  return unpack_missing(s, std::fma(-s, s, a));
}
inline Unpacked fma_wide(long double a, long double b, long double c) {
  const long double p = a * b;
  const long double s = p + c;
  if (!std::isfinite(s)) return unpack_wide(s);
  const long double low = std::fma(a, b, -p), error = two_sum_error(p, c, s);
  // The two errors' sum decides where s is exact to 64 bits but for them; its sign is enough, and nearest rounding keeps it.
  const long double missing = low + error;
  if (missing == 0) return unpack_wide(s); // -0 + 0 would lose the sign
  const long double t = s + missing;
  return unpack_missing(t, two_sum_error(s, missing, t));
}

} // namespace c10::formats
