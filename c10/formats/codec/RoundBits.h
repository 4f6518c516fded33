// The one place where a rounding mode decides: given what was cut off, does the magnitude go up to
// the next code?
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// A magnitude being rounded: whole codes, and what lies below them as a fraction of one code,
// fraction * 2^-64 (+ less than 2^-64 if sticky). Nothing cut off: exact, and only UpDown moves it.
struct Cut {
  uint64_t kept{0};
  uint64_t fraction{0};
  bool sticky{false};

  TD_METHOD bool half() const { return fraction >> 63; }
  TD_METHOD bool rest() const { return (fraction << 1) != 0 || sticky; }
};

// random: a word of 64 uniform bits, for the stochastic modes. UpDown is nearest even here; moved()
// in ExactCodec.h is its other half.
TD_HOST_DEVICE constexpr bool rounds_up(Rounding mode, bool negative, const Cut& c,
                                        uint64_t random) {
  const bool odd = c.kept & 1, half = c.half(), rest = c.rest();
  switch (mode) {
    case Rounding::NearestEven:
    case Rounding::UpDown: return half && (rest || odd);
    case Rounding::NearestZero: return half && rest;
    case Rounding::NearestAway: return half;
    case Rounding::Up: return !negative && (half || rest);
    case Rounding::Down: return negative && (half || rest);
    case Rounding::TowardZero: return false;
    case Rounding::ToOdd: return !odd && (half || rest);
    case Rounding::NearestUp: return half && (rest || !negative);
    case Rounding::Stochastic: return c.fraction + random < c.fraction; // the sum's carry
    case Rounding::StochasticEqual: return (half || rest) && random >> 63;
  }
  return false;
}

// Whether a mode may round up what lies only just above a code.
constexpr bool lifts_traces(Rounding mode) {
  const auto lifts = [=](bool negative, uint64_t kept) {
    return rounds_up(mode, negative, {kept, 0, true}, ~uint64_t{0});
  };
  return lifts(false, 0) || lifts(false, 1) || lifts(true, 0) || lifts(true, 1);
}

// Whether a mode may leave what lies only just below the next code.
constexpr bool drops_traces(Rounding mode) {
  const auto drops = [=](bool negative, uint64_t kept) {
    return !rounds_up(mode, negative, {kept, ~uint64_t{0}, true}, ~uint64_t{0});
  };
  return drops(false, 0) || drops(false, 1) || drops(true, 0) || drops(true, 1);
}

// Whether a mode rounds by whether anything is cut off, however little: a number and what is just
// beside it differ.
constexpr bool sees_inexact(Rounding mode) {
  return lifts_traces(mode) || drops_traces(mode);
}

// The mode `stochastic` by n bits of the word, from the fraction taken to n bits: 0 < n < 64.
TD_HOST_DEVICE constexpr bool rounds_up_by_few(FewBits how, int n, const Cut& c, uint64_t random) {
  const uint64_t unit = uint64_t{1} << (64 - n), below = c.fraction & (unit - 1), half = unit >> 1;
  uint64_t fraction = c.fraction - below;
  const bool up = how == FewBits::B
      ? below >= half
      : how == FewBits::C && (below > half || (below == half && (c.sticky || (fraction & unit))));
  if (up) fraction += unit;
  if (up && fraction == 0) return true; // all of the gap
  return fraction + (random & ~(unit - 1)) < fraction;
}

// The same by a format's mode and its number of random bits.
TD_HOST_DEVICE constexpr bool rounds_up(const Format& f, bool negative, const Cut& c,
                                        uint64_t random) {
  if (f.random_bits != 0 && f.rounding == Rounding::Stochastic)
    return rounds_up_by_few(f.few_bits, f.random_bits, c, random);
  return rounds_up(f.rounding, negative, c, random);
}

// Whether a finite value beyond the largest finite one stays at it: directed modes that point
// towards zero there, and rounding to odd (IEEE 754-2019 section 7.4 for the directed ones; an
// infinity is no odd code).
TD_HOST_DEVICE constexpr bool stops_at_max(Rounding mode, bool negative) {
  switch (mode) {
    case Rounding::Up: return negative;
    case Rounding::Down: return !negative;
    case Rounding::TowardZero:
    case Rounding::ToOdd: return true;
    case Rounding::NearestEven:
    case Rounding::NearestZero:
    case Rounding::NearestAway:
    case Rounding::NearestUp:
    case Rounding::Stochastic:
    case Rounding::StochasticEqual:
    case Rounding::UpDown: return false;
  }
  return false;
}

} // namespace c10::formats
