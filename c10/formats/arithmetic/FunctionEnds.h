// What float64's results of a function stand for where they cannot say it themselves: beside a
// number that the function comes near to, and beyond float64's range.
#pragma once
#include <cstdint>

namespace c10::formats {

// What a function comes near to, and on which side of it its results lie, wherever they are finite
// and the operand is not 0: sin x < x.
enum class Near : uint8_t { Operand, HalfOperand, ThreeFifths, One, Half, Two };
// Inwards: nearer to 0.
enum class Side : uint8_t { Above, Below, Inwards, Outwards, AsOperand, AgainstOperand };

// One end of a function: the place that its results come near to, and the side on which they lie.
struct Approach {
  Near near;
  Side side;
};

// What a function's results are that have left float64's range though it has no pole there.
enum class Tail : uint8_t {
  Signed,        // infinities and zeros with the sign of the exact result
  NegativeZeros, // zeros without it: all are negative
  // Of logaddexp: a 0 of 0 and a smaller number is a little above 0, however small the other's
  // power; elsewhere a 0 is one,
  ZerosAlone,
  // or what cancellation left
};

// All of it, for one function. Without limits and not ranged, results stay.
struct FunctionEnds {
  static constexpr int kMostLimits = 2;
  // stock's functions are a few of float64's digits off, and no format here has so many
  static constexpr double kNearness = 0x1p-50;

  Approach limits[kMostLimits]{};
  int count{0};
  bool ranged{false};
  Tail tail{Tail::Signed};
};

} // namespace c10::formats
