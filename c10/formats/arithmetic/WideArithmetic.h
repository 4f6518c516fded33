// + - * / sqrt fma of float64 numbers, for formats that float64 arithmetic cannot serve (more than
// 51 significand bits, or exponents up to float64's own). Integers of 128 bits give 64 digits, and
// whether more follow, for the generic codec.
//
// Results are exact, so only the alignment of digits matters. If an operand is 0, infinite or NaN,
// the result is float64's own. Intermediate results of formulas (the quotient of addcdiv) are
// rounded to 64 digits, to nearest even.
#pragma once
#include <c10/formats/codec/Unpacked.h>

#include <cmath>

namespace c10::formats {

using Word128 = unsigned __int128;

// (-1)^negative * (word + sticky * delta) * 2^(exponent - 127), 0 < delta < 1.
struct Number128 {
  bool negative;
  int exponent;
  Word128 word;
  bool sticky{false};
};

TD_HOST_DEVICE inline Number128 normalized(Number128 x) {
  const auto high = static_cast<uint64_t>(x.word >> 64);
  const int zeros =
      high ? count_leading_zeros(high) : 64 + count_leading_zeros(static_cast<uint64_t>(x.word));
  x.word <<= zeros;
  x.exponent -= zeros;
  return x;
}

// The 64 leading digits; the rest is sticky. Terms that cancel give +0.
TD_HOST_DEVICE inline Unpacked digits_of(Number128 x) {
  Unpacked u;
  if (x.word == 0) return u;
  x = normalized(x);
  u.cls = Class::Finite;
  u.negative = x.negative;
  u.sticky = x.sticky || static_cast<uint64_t>(x.word) != 0;
  u.exponent = x.exponent;
  u.significand = static_cast<uint64_t>(x.word >> 64);
  return u;
}

TD_HOST_DEVICE inline Unpacked nearest_of(Number128 x) {
  Unpacked u = digits_of(x);
  if (!u.sticky) return u;
  const auto below = static_cast<uint64_t>(normalized(x).word);
  const bool half = below >> 63, more = x.sticky || below << 1 != 0;
  if (half && (more || (u.significand & 1)) && ++u.significand == 0) {
    u.significand = uint64_t{1} << 63;
    ++u.exponent;
  }
  u.sticky = false;
  return u;
}

// Finite and not 0.
TD_HOST_DEVICE inline bool is_number(const Unpacked& u) {
  return u.cls == Class::Finite;
}
TD_HOST_DEVICE inline Number128 widened(const Unpacked& u) {
  return {u.negative, u.exponent, static_cast<Word128>(u.significand) << 64};
}

TD_HOST_DEVICE inline Number128 product(const Unpacked& a, const Unpacked& b) {
  return {a.negative != b.negative, a.exponent + b.exponent + 1,
          static_cast<Word128>(a.significand) * b.significand};
}

// Adds words whose leading digit is bit 127 or 126 and whose last one is 0. Lost digits of the
// smaller term are less than the last place. For a difference the next number below, with sticky
// digits, stands for them.
TD_HOST_DEVICE inline Number128 sum_of(Number128 a, Number128 b) {
  a = normalized(a);
  b = normalized(b);
  if (b.exponent > a.exponent || (b.exponent == a.exponent && b.word > a.word)) {
    const Number128 smaller = a;
    a = b;
    b = smaller;
  }
  const int shift = a.exponent - b.exponent + 1; // one more place for the carry
  const Word128 shifted = shift > 127 ? 0 : b.word >> shift;
  const bool lost = shift > 127 || shifted << shift != b.word;
  const Word128 word = a.word >> 1;
  return {a.negative, a.exponent + 1,
          a.negative == b.negative ? word + shifted : word - shifted - lost, lost};
}

TD_HOST_DEVICE inline Number128 quotient(const Unpacked& a, const Unpacked& b) {
  const bool carries = a.significand >= b.significand;
  const Word128 numerator = static_cast<Word128>(a.significand) << (carries ? 63 : 64);
  const auto digits = static_cast<uint64_t>(numerator / b.significand);
  const auto rest = static_cast<uint64_t>(numerator - static_cast<Word128>(digits) * b.significand),
             beyond = b.significand - rest;
  const Word128 half = static_cast<Word128>(rest >= beyond) << 63;
  return {a.negative != b.negative, a.exponent - b.exponent - !carries,
          static_cast<Word128>(digits) << 64 | half, rest != 0 && rest != beyond};
}

// ---- operators ----

inline Unpacked add_wide(double a, double b) {
  const Unpacked x = unpack(a), y = unpack(b);
  return is_number(x) && is_number(y) ? digits_of(sum_of(widened(x), widened(y))) : unpack(a + b);
}
inline Unpacked multiply_wide(double a, double b) {
  const Unpacked x = unpack(a), y = unpack(b);
  return is_number(x) && is_number(y) ? digits_of(product(x, y)) : unpack(a * b);
}
inline Unpacked divide_wide(double a, double b) {
  const Unpacked x = unpack(a), y = unpack(b);
  return is_number(x) && is_number(y) ? digits_of(quotient(x, y)) : unpack(a / b);
}

// Starts from float64's root, of 53 digits. A step of Newton's method makes it wrong by a few
// places at most.
inline Unpacked sqrt_wide(double a) {
  Unpacked x = unpack(a);
  if (!is_number(x) || x.negative) return unpack(std::sqrt(a));
  const bool odd = x.exponent & 1;
  const Word128 square = static_cast<Word128>(x.significand) << (odd ? 64 : 63);
  const double guess = std::sqrt(static_cast<double>(square)); // 2^63 to 2^64
  constexpr Word128 largest = ~uint64_t{0};
  Word128 root = guess < 0x1p64 ? static_cast<uint64_t>(guess) : largest;
  const auto off = static_cast<__int128>(square - root * root);
  root += static_cast<Word128>(static_cast<__int128>(static_cast<double>(off) / (2 * guess)));
  if (root > largest) root = largest;
  while (root * root > square) --root;
  while (root < largest && (root + 1) * (root + 1) <= square) ++root;
  x.significand = static_cast<uint64_t>(root);
  x.sticky = root * root != square;
  x.exponent = (x.exponent - odd) / 2;
  return x;
}

// a * b + c, where one factor has 64 digits.
inline Unpacked fused_wide(const Unpacked& a, const Unpacked& b, double c) {
  const Unpacked z = unpack(c);
  if (is_number(a) && is_number(b)) {
    if (is_number(z)) return digits_of(sum_of(product(a, b), widened(z)));
    return z.cls == Class::Zero ? digits_of(product(a, b)) : z;
  }
  const auto sign = [](const Unpacked& u) {
    if (!is_number(u)) return to_double(u);
    return u.negative ? -1.0 : 1.0;
  };
  return unpack(sign(a) * sign(b) + c); // 0, infinite or NaN, plus c
}

inline Unpacked fma_wide(double a, double b, double c) {
  return fused_wide(unpack(a), unpack(b), c);
}
// s * (a / b) + c
inline Unpacked addcdiv_wide(double a, double b, double c, double s) {
  const Unpacked x = unpack(a), y = unpack(b);
  return fused_wide(is_number(x) && is_number(y) ? nearest_of(quotient(x, y)) : unpack(a / b),
                    unpack(s), c);
}
// s * (a * b) + c
inline Unpacked addcmul_wide(double a, double b, double c, double s) {
  if (s == 1) return fma_wide(a, b, c);
  const Unpacked x = unpack(a), y = unpack(b);
  return fused_wide(is_number(x) && is_number(y) ? nearest_of(product(x, y)) : unpack(a * b),
                    unpack(s), c);
}
// a + w * (b - a)
inline Unpacked lerp_wide(double a, double b, double w) {
  const Unpacked x = unpack(-a), y = unpack(b);
  return fused_wide(
      is_number(x) && is_number(y) ? nearest_of(sum_of(widened(y), widened(x))) : unpack(b - a),
      unpack(w), a);
}

} // namespace c10::formats
