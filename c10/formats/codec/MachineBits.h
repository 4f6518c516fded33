// Machine floats (float, double) as bits, and comparisons as masks, for branch-free loops.
#pragma once
#include <c10/formats/NumberFormat.h>

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

// Comparisons as masks of all ones or all zeros, by arithmetic alone: compilers turn comparisons
// into branches, and then do not vectorise the loop. The two numbers must be less than 2^(width -
// 1) apart.
template <typename T>
TD_INLINE typename Machine<T>::Bits mask_less(typename Machine<T>::Bits a,
                                              typename Machine<T>::Bits b) {
  using Bits = typename Machine<T>::Bits;
  return static_cast<Bits>(static_cast<typename Machine<T>::Signed>(a - b) >>
                           (Machine<T>::width - 1));
}
template <typename T>
TD_INLINE typename Machine<T>::Bits mask_nonzero(typename Machine<T>::Bits a) {
  using Bits = typename Machine<T>::Bits;
#if defined(__SSE4_1__) // has a minimum of unsigned numbers
  if constexpr (sizeof(Bits) == 4) return Bits{0} - (a < 1 ? a : Bits{1});
#endif
  return static_cast<Bits>(static_cast<typename Machine<T>::Signed>(a | (Bits{0} - a)) >>
                           (Machine<T>::width - 1));
}
template <typename Bits>
TD_INLINE Bits select(Bits mask, Bits a, Bits b) {
  return (a & mask) | (b & ~mask);
}

// 2^e as T, including subnormals; 0 below them.
template <typename T>
TD_INLINE T power_of_two(int e) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  if (e >= 1 - M::bias) return bits_as<T>(Bits(e + M::bias) << M::fraction);
  const int position = e - (1 - M::bias) + M::fraction;
  return bits_as<T>(position >= 0 ? Bits{1} << position : Bits{0});
}

TD_INLINE float magnitude(float x) {
  return __builtin_fabsf(x);
}
TD_INLINE double magnitude(double x) {
  return __builtin_fabs(x);
}

// Whether a float format's smallest binade is the machine's, and so are its subnormals.
template <typename T>
TD_HOST_DEVICE constexpr bool same_binade(const Format& f) {
  return f.min_exponent() == 1 - Machine<T>::bias;
}

// A magnitude's exponent and fraction as one fixed-point number, exponent.fraction.
template <typename T>
TD_INLINE typename Machine<T>::Signed exponent_fraction(typename Machine<T>::Bits magnitude) {
  using M = Machine<T>;
  return static_cast<typename M::Signed>(magnitude) -
      static_cast<typename M::Signed>(typename M::Bits{M::bias} << M::fraction);
}
// Limits x to [-limit, limit], by a max and a min instruction.
template <typename Signed>
TD_INLINE Signed held_within(Signed x, Signed limit) {
  x = x < -limit ? -limit : x;
  return x > limit ? limit : x;
}

template <typename T>
TD_INLINE typename Machine<T>::Bits infinity_bits() {
  using M = Machine<T>;
  return typename M::Bits(2 * M::bias + 1) << M::fraction;
}
// The largest magnitude that a posit encodes as a number, as bits: those above are NaR.
template <typename T>
TD_INLINE typename Machine<T>::Bits largest_number(const Format& f) {
  return infinity_bits<T>() - f.infinity_is_nan();
}
template <typename T>
TD_INLINE typename Machine<T>::Bits nan_bits() {
  using M = Machine<T>;
  return typename M::Bits(4 * M::bias + 3) << (M::fraction - 1);
}

} // namespace c10::formats
