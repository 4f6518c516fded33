// float64 itself as a format: its values are its codes.
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// Whether a format's codes are float64's, in any rounding mode. (The format has one NaN of each
// sign.)
TD_HOST_DEVICE constexpr bool is_binary64(const Format& f) {
  return f.kind == Kind::Float && f.bits == 64 && f.exp_bits == 11 && f.man_bits == 52 &&
      f.bias == 1023 && f.specials == Specials::Ieee && f.overflow == Overflow::Ieee &&
      f.subnormals == Subnormals::Gradual && f.is_signed;
}

inline constexpr uint64_t kNanOfBinary64 = 0x7FF8000000000000;

} // namespace c10::formats
