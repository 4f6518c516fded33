// The one place where a rounding mode decides: given what was cut off, does the magnitude go up to the next code?
#pragma once
#include <c10/core/NumberFormat.h>

namespace c10::formats {

// odd: the kept code is odd; half: the first bit cut off; rest: any bit below it (sticky). No bit cut off: exact, and no mode moves it.
TD_HOST_DEVICE constexpr bool rounds_up(Rounding mode, bool negative, bool odd, bool half, bool rest) {
  switch (mode) {
    case Rounding::NearestEven: return half && (rest || odd);
    case Rounding::NearestZero: return half && rest;
    case Rounding::NearestAway: return half;
    case Rounding::Up: return !negative && (half || rest);
    case Rounding::Down: return negative && (half || rest);
    case Rounding::TowardZero: return false;
    case Rounding::ToOdd: return !odd && (half || rest);
  }
  return false;
}

// Whether a finite value beyond the largest finite one stays at it: directed modes that point towards zero there, and rounding to odd
// (IEEE 754-2019 section 7.4 for the directed ones; an infinity is no odd code).
TD_HOST_DEVICE constexpr bool stops_at_max(Rounding mode, bool negative) {
  switch (mode) {
    case Rounding::Up: return negative;
    case Rounding::Down: return !negative;
    case Rounding::TowardZero:
    case Rounding::ToOdd: return true;
    default: return false;
  }
}

} // namespace c10::formats
