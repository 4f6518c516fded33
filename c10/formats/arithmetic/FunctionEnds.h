// Corrections for results of a function that float64 cannot hold: next to a number that the
// function comes near to, and beyond float64's range.
#pragma once
#include <cstdint>

namespace c10::formats {

// The number that a function's results come near to, where they are finite and the operand is not
// 0: sin x < x.
enum class Near : uint8_t { Operand, HalfOperand, ThreeFifths, One, Half, Two };
// Inwards: nearer to 0.
enum class Side : uint8_t { Above, Below, Inwards, Outwards, AsOperand, AgainstOperand };

// One end of a function: the number that its results come near to, and the side on which they are.
struct Approach {
  Near near;
  Side side;
};

// The exact results behind infinities and zeros of float64, for a function without a pole there.
enum class Tail : uint8_t {
  Signed,        // Infinities and zeros have the sign of the exact result.
  NegativeZeros, // All zeros stand for negative results, whatever their sign.
  // For logaddexp. A 0 of 0 and a smaller number is a little above 0, however small the other's
  // power is. Any other 0 is exact, or left by cancellation.
  ZerosAlone,
};

// All ends of one function. Without limits and not ranged, results stay unchanged.
struct FunctionEnds {
  static constexpr int kMostLimits = 2;
  // Stock functions are wrong by a few of float64's last digits, and no format here has so many.
  static constexpr double kNearness = 0x1p-50;

  Approach limits[kMostLimits]{};
  int count{0};
  bool ranged{false};
  Tail tail{Tail::Signed};
};

} // namespace c10::formats
