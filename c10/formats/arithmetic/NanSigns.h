// The sign of NaN, for formats in which it is visible.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>
#include <limits>

namespace c10::formats {

// If NaN's only code is the largest number's, its sign is visible.
TD_HOST_DEVICE constexpr bool shows_nan_signs(const Format& f) {
  return f.kind == Kind::Float && f.specials == Specials::None;
}

// Makes the NaN of an invalid operation (0/0) positive, as most processors do; x86 gives it a sign.
// For results of arithmetic, before they are encoded.
template <typename T>
inline void drop_nan_signs(const Format& f, T* results, int64_t n) {
  if (!shows_nan_signs(f)) return;
  for (int64_t i = 0; i < n; ++i)
    results[i] = results[i] != results[i] ? std::numeric_limits<T>::quiet_NaN() : results[i];
}

} // namespace c10::formats
