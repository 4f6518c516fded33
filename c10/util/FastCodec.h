// Branch-free codecs between codes and a machine float type T (float or double), written so that compilers vectorise loops over them.
// Nearest rounding, ties to even. They agree bit for bit with ExactCodec.h for every format with fits_float() (T = float) or any other
// supported format (T = double); test/test_codec.py holds them to it.
#pragma once
#include <c10/util/Unpacked.h>

#include <type_traits>

namespace c10::formats {

template <typename T>
struct Machine;
template <>
struct Machine<float> {
  using Bits = uint32_t;
  using Signed = int32_t;
  static constexpr int width = 32, fraction = 23, bias = 127;
};
template <>
struct Machine<double> {
  using Bits = uint64_t;
  using Signed = int64_t;
  static constexpr int width = 64, fraction = 52, bias = 1023;
};

template <typename To, typename From>
TD_INLINE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

// Comparisons as masks of all ones or all zeros, made by arithmetic alone: from a comparison compilers make branches again, and then do
// not vectorise the loop. The two numbers must be less than 2^(width - 1) apart.
template <typename T>
TD_INLINE typename Machine<T>::Bits mask_less(typename Machine<T>::Bits a, typename Machine<T>::Bits b) {
  using Bits = typename Machine<T>::Bits;
  return static_cast<Bits>(static_cast<typename Machine<T>::Signed>(a - b) >> (Machine<T>::width - 1));
}
template <typename T>
TD_INLINE typename Machine<T>::Bits mask_nonzero(typename Machine<T>::Bits a) {
  using Bits = typename Machine<T>::Bits;
  return static_cast<Bits>(static_cast<typename Machine<T>::Signed>(a | (Bits{0} - a)) >> (Machine<T>::width - 1));
}
template <typename Bits>
TD_INLINE Bits select(Bits mask, Bits a, Bits b) {
  return (a & mask) | (b & ~mask);
}

// 2^e as T, subnormal ones included; 0 below them.
template <typename T>
TD_INLINE T power_of_two(int e) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  if (e >= 1 - M::bias) return bits_as<T>(Bits(e + M::bias) << M::fraction);
  const int position = e - (1 - M::bias) + M::fraction;
  return bits_as<T>(position >= 0 ? Bits{1} << position : Bits{0});
}

// Number of leading zeros of a nonzero word whose highest set bit is among its top 24 (float) or 53 (double) bits, by way of the
// exponent of its conversion to T, which (unlike clz) every vector unit has.
template <typename T>
TD_INLINE typename Machine<T>::Signed leading_zeros_by_conversion(typename Machine<T>::Bits x) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  constexpr int drop = M::width - M::fraction - 1;
  const T converted = static_cast<T>(static_cast<Signed>(x >> drop));
  return M::bias + M::fraction - static_cast<Signed>(bits_as<Bits>(converted) >> M::fraction);
}

// Posit: the machine number's exponent and fraction, taken as one fixed-point number b = e.f, are the posit's (k, x).f already.
//   1. Clamp b to [minpos, maxpos]: afterwards rounding can neither reach zero nor NaR.
//   2. k = b >> (fraction + es), tail = what is below.
//   3. word = '10' (k >= 0) or '01' (k < 0), then the tail; an arithmetic shift right by k or -k - 1 makes the regime's run.
//      Bits shifted out are kept as one sticky bit.
//   4. Round the top bits - 1 bits to nearest even as an integer.
//
// What the loop needs of a format are plain numbers made before it: deriving them takes branches, and those would be in the loop.
struct PositConstants {
  int64_t max_exponent;
  uint64_t nan_code, code_mask;
  int bits, es;

  TD_HOST_DEVICE __attribute__((always_inline)) PositConstants(const Format& f)
      : max_exponent(f.max_exponent()), nan_code(f.nan_code()), code_mask(f.code_mask()), bits(f.bits), es(f.exp_bits) {}
};

template <typename T>
TD_INLINE typename Machine<T>::Bits encode_posit_fast(const PositConstants& f, T x) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  constexpr int W = M::width;
  const int low_bits = M::fraction + f.es;
  const Bits u = bits_as<Bits>(x);
  const Bits a = u & (~Bits{0} >> 1);
  const Signed limit = static_cast<Signed>(Bits(f.max_exponent) << M::fraction);
  Signed b = static_cast<Signed>(a) - static_cast<Signed>(Bits{M::bias} << M::fraction);
  b = b < -limit ? -limit : b; // these two become min and max instructions
  b = b > limit ? limit : b;
  const Signed k = b >> low_bits;
  const Bits tail = static_cast<Bits>(b) & ((Bits{1} << low_bits) - 1);
  const Bits word = ((Bits(2) - (static_cast<Bits>(k) >> (W - 1))) << (W - 2)) | (tail << (W - 2 - low_bits));
  const Bits run = static_cast<Bits>(k ^ (k >> (W - 1)));
  const Bits lost = word ^ ((word >> run) << run);
  const Bits string = static_cast<Bits>(static_cast<Signed>(word) >> run) | (mask_nonzero<T>(lost) & 1);
  const int drop = W - (f.bits - 1);
  const Bits odd = (string >> drop) & 1;
  Bits code = (string + ((Bits{1} << (drop - 1)) - 1 + odd)) >> drop;
  const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (W - 1));
  code = (code ^ sign) - sign;
  code &= mask_nonzero<T>(a);
  const Bits infinity = Bits(2 * M::bias + 1) << M::fraction;
  code = select(mask_less<T>(infinity - 1, a), static_cast<Bits>(f.nan_code), code);
  return code & static_cast<Bits>(f.code_mask);
}

// Float: see encode_float in ExactCodec.h for the algebra; here a subnormal machine number has e = its type's smallest exponent and no
// leading bit, which the same formula takes (the format's smallest exponent is never below the machine's).
template <typename T>
struct FloatConstants {
  typename Machine<T>::Bits smallest, half; // the smallest normal number and half of it, as machine numbers
  typename Machine<T>::Bits flush;          // a mask
  int64_t min_exponent, beyond_exponent;
  uint64_t max_code, overflow_code, nan_code;
  int man_bits, sign_bit;

  TD_HOST_DEVICE __attribute__((always_inline)) FloatConstants(const Format& f)
      : smallest(bits_as<typename Machine<T>::Bits>(power_of_two<T>(f.min_exponent()))),
        half(bits_as<typename Machine<T>::Bits>(power_of_two<T>(f.min_exponent() - 1))),
        flush(typename Machine<T>::Bits{0} - (f.subnormals == Subnormals::Flush)),
        min_exponent(f.min_exponent()),
        beyond_exponent(f.max_exponent() + 1),
        max_code(f.max_code()),
        overflow_code(f.overflow_code()),
        nan_code(f.nan_code()),
        man_bits(f.man_bits),
        sign_bit(f.bits - 1) {}
};

template <typename T>
TD_INLINE typename Machine<T>::Bits encode_float_fast(const FloatConstants<T>& f, T x) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  const Bits u = bits_as<Bits>(x);
  const Bits a = u & (~Bits{0} >> 1);
  const Bits infinity = Bits(2 * M::bias + 1) << M::fraction;
  const Signed field = static_cast<Signed>(a >> M::fraction);
  const Bits significand = (a & ((Bits{1} << M::fraction) - 1)) | ((mask_nonzero<T>(static_cast<Bits>(field)) & 1) << M::fraction);
  Signed e = (field > 1 ? field : 1) - M::bias;
  const Signed emin = static_cast<Signed>(f.min_exponent);
  const Signed emax = static_cast<Signed>(f.beyond_exponent);
  e = e < emax ? e : emax; // larger ones are beyond the largest finite value as this one is
  const Signed up = e > emin ? e : emin;
  Signed shift = M::fraction - f.man_bits + (up - e);
  shift = shift < M::fraction + 2 ? shift : M::fraction + 2; // all of them cut the significand to less than a half
  const Bits odd = (significand >> shift) & mask_nonzero<T>(static_cast<Bits>(shift)) & 1;
  const Bits q = (significand + (((Bits{1} << shift) - 1) >> 1) + odd) >> shift;
  Bits code = (Bits(up - emin) << f.man_bits) + q;
  const Bits flushed = (mask_less<T>(f.half, a) & 1) << f.man_bits; // neighbours 0 and the smallest normal number; 0 is the even one
  code = select(f.flush & mask_less<T>(a, f.smallest), flushed, code);
  const Bits beyond = mask_less<T>(static_cast<Bits>(f.max_code), code) | mask_less<T>(infinity - 1, a);
  code = select(beyond, static_cast<Bits>(f.overflow_code), code);
  code = select(mask_less<T>(infinity, a), static_cast<Bits>(f.nan_code), code);
  return code | (static_cast<Bits>(u >> (M::width - 1)) << f.sign_bit);
}

template <typename T>
TD_INLINE typename Machine<T>::Bits encode_fast(const Format& f, T x) {
  return f.is_posit() ? encode_posit_fast<T>(f, x) : encode_float_fast<T>(f, x);
}

// Posit: find the run, then regime and the x.f behind it land in the machine number's exponent and fraction by one shift and one add.
template <typename T>
TD_INLINE T decode_posit_fast(const Format& f, typename Machine<T>::Bits code) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  constexpr int W = M::width;
  const Bits top = code << (W - f.bits);
  const Bits sign = static_cast<Bits>(static_cast<Signed>(top) >> (W - 1));
  const Bits string = ((top ^ sign) - sign) << 1;
  const Signed ones = static_cast<Signed>(string) >> (W - 1); // -1 where the regime is a run of ones
  const Signed run = leading_zeros_by_conversion<T>(string ^ static_cast<Bits>(ones));
  const Signed k = (run - 1) ^ ~ones; // run - 1, or -run
  const Bits tail = (string << (run & (W - 1))) << 1;
  const Bits exponent = static_cast<Bits>(k * (Signed{1} << f.exp_bits) + M::bias) << M::fraction;
  Bits value = exponent + (tail >> (W - M::fraction - f.exp_bits));
  value |= sign & ~(~Bits{0} >> 1);
  const Bits nan = Bits(4 * M::bias + 3) << (M::fraction - 1);
  value = select(~mask_nonzero<T>(string), nan & sign, value); // 0, or NaR: a sign and nothing else
  return bits_as<T>(value);
}

// Float: field and fraction are moved to the machine's place and rebiased. A subnormal is a normal number of the smallest binade less
// that binade's leading one, an exact subtraction.
template <typename T>
TD_INLINE T decode_float_fast(const Format& f, typename Machine<T>::Bits code) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  const Bits sign_code = static_cast<Bits>(f.sign_code());
  const Bits magnitude = code & (sign_code - 1);
  const Bits moved = magnitude << (M::fraction - f.man_bits);
  const Bits smallest = Bits(f.min_exponent() + M::bias) << M::fraction;
  const T gradual = bits_as<T>(moved + smallest) - bits_as<T>(smallest);
  // Where the format's smallest binade is the machine's, its subnormals are too (and processors told to flush them would lose them).
  const Bits same = select(Bits{0} - Bits(f.min_exponent() == 1 - M::bias), moved, bits_as<Bits>(gradual));
  const Bits subnormal = same & (Bits{0} - Bits(f.subnormals == Subnormals::Gradual));
  const Bits normal = moved + (static_cast<Bits>(M::bias - f.bias) << M::fraction);
  Bits value = select(mask_less<T>(magnitude, Bits{1} << f.man_bits), subnormal, normal);
  const Bits infinity = Bits(2 * M::bias + 1) << M::fraction;
  const Bits nan = Bits(4 * M::bias + 3) << (M::fraction - 1);
  const Bits max_code = static_cast<Bits>(f.max_code());
  const Bits is_infinity = ~mask_nonzero<T>(magnitude - max_code - 1) & (Bits{0} - Bits(f.has_infinity()));
  value = select(mask_less<T>(max_code, magnitude), select(is_infinity, infinity, nan), value);
  return bits_as<T>(value | (mask_nonzero<T>(code & sign_code) & ~(~Bits{0} >> 1)));
}

template <typename T>
TD_INLINE T decode_fast(const Format& f, typename Machine<T>::Bits code) {
  return f.is_posit() ? decode_posit_fast<T>(f, code) : decode_float_fast<T>(f, code);
}

} // namespace c10::formats
