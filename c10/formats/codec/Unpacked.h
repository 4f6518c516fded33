// An unpacked real number: the exact value before every rounding and after every decoding.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <bit>
#include <cstdint>

namespace c10::formats {

enum class Class : uint8_t { Zero, Finite, Infinite, NaN };

// Finite: (-1)^negative * (significand + sticky * delta) * 2^(exponent - 63), with bit 63 of the
// significand set and 0 < delta < 1.
struct Unpacked {
  Class cls{Class::Zero};
  bool negative{false};
  bool sticky{false};
  int exponent{0};
  uint64_t significand{0};
};

TD_HOST_DEVICE inline int count_leading_zeros(uint64_t x) {
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(x));
#else
  return std::countl_zero(x);
#endif
}

// (-1)^negative * magnitude * 2^scale
TD_HOST_DEVICE inline Unpacked unpack_integer(uint64_t magnitude, bool negative, int scale = 0) {
  Unpacked u;
  u.negative = negative;
  if (magnitude == 0) return u;
  const int zeros = count_leading_zeros(magnitude);
  u.cls = Class::Finite;
  u.significand = magnitude << zeros;
  u.exponent = 63 - zeros + scale;
  return u;
}

TD_HOST_DEVICE inline Unpacked unpack(int64_t x) {
  return x < 0 ? unpack_integer(0 - static_cast<uint64_t>(x), true)
               : unpack_integer(static_cast<uint64_t>(x), false);
}
TD_HOST_DEVICE inline Unpacked unpack(uint64_t x) {
  return unpack_integer(x, false);
}

TD_HOST_DEVICE inline uint64_t double_bits(double x) {
#ifdef __CUDA_ARCH__
  return static_cast<uint64_t>(__double_as_longlong(x));
#else
  return std::bit_cast<uint64_t>(x);
#endif
}
TD_HOST_DEVICE inline double double_from_bits(uint64_t x) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(x));
#else
  return std::bit_cast<double>(x);
#endif
}

TD_HOST_DEVICE inline Unpacked unpack(double x) {
  const uint64_t bits = double_bits(x);
  const bool negative = bits >> 63;
  const int field = int(bits >> 52) & 0x7ff;
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0x7ff) {
    Unpacked u;
    u.cls = fraction ? Class::NaN : Class::Infinite;
    u.negative = negative;
    return u;
  }
  if (field == 0) return unpack_integer(fraction, negative, -1074);
  return unpack_integer(fraction | (uint64_t{1} << 52), negative, field - 1075);
}

// The exact value as a double. It must fit, as values of every supported format do: torch_dtypes
// refuses others.
TD_HOST_DEVICE inline double to_double(const Unpacked& u) {
  const uint64_t sign = uint64_t{u.negative} << 63;
  switch (u.cls) {
    case Class::Zero: return double_from_bits(sign);
    case Class::Infinite: return double_from_bits(sign | (uint64_t{0x7ff} << 52));
    case Class::NaN: return double_from_bits(sign | (uint64_t{0xfff} << 51));
    case Class::Finite: break;
  }
  if (u.exponent < -1022)
    return double_from_bits(sign | ((u.significand >> 11) >> (-1022 - u.exponent)));
  return double_from_bits(sign | ((uint64_t(u.exponent + 1022) << 52) + (u.significand >> 11)));
}

} // namespace c10::formats
