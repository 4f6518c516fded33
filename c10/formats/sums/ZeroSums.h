// The sign of a sum that is 0, which depends on the rounding mode (IEEE 754-2019, section 6.3).
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cstdint>

namespace c10::formats {

// Rounding down, a sum of 0 is -0 unless both terms are positive. In other modes it has the sign of
// the machine's sum.
TD_HOST_DEVICE constexpr bool signs_zero_sums(Rounding mode) {
  return mode == Rounding::Down;
}

template <typename T>
TD_INLINE bool is_positive(T x) {
  return bits_as<typename Machine<T>::Bits>(x) >> (Machine<T>::width - 1) == 0;
}

// both_positive(i): whether both terms of sum i are positive.
template <typename T, typename BothPositive>
inline void sign_zero_sums(Rounding mode, T* sums, int64_t n, BothPositive both_positive) {
  if (!signs_zero_sums(mode)) return;
  for (int64_t i = 0; i < n; ++i) {
    if (sums[i] == 0) sums[i] = both_positive(i) ? T{0} : -T{0};
  }
}

} // namespace c10::formats
