// Rounding modes decide only here: given the discarded part, does the magnitude go up to the next
// code?
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// A magnitude to round: whole codes, and the rest as a fraction of one code, fraction * 2^-64 (+
// less than 2^-64 if sticky). If nothing is cut off it is exact, and only UpDown moves it.
struct Cut {
  uint64_t kept{0};
  uint64_t fraction{0};
  bool sticky{false};

  TD_METHOD bool half() const { return fraction >> 63; }
  TD_METHOD bool rest() const { return (fraction << 1) != 0 || sticky; }
};

// random: a word of 64 uniform bits, for the stochastic modes. UpDown is nearest even here; moved()
// in ExactCodec.h is its second half.
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
    case Rounding::Stochastic: return c.fraction + random < c.fraction; // the sum carries
    case Rounding::StochasticEqual: return (half || rest) && random >> 63;
  }
  return false;
}

// Whether a mode may round up a number that is only just above a code.
constexpr bool lifts_traces(Rounding mode) {
  const auto lifts = [=](bool negative, uint64_t kept) {
    return rounds_up(mode, negative, {kept, 0, true}, ~uint64_t{0});
  };
  return lifts(false, 0) || lifts(false, 1) || lifts(true, 0) || lifts(true, 1);
}

// Whether a mode may round down a number that is only just below the next code.
constexpr bool drops_traces(Rounding mode) {
  const auto drops = [=](bool negative, uint64_t kept) {
    return !rounds_up(mode, negative, {kept, ~uint64_t{0}, true}, ~uint64_t{0});
  };
  return drops(false, 0) || drops(false, 1) || drops(true, 0) || drops(true, 1);
}

// Whether it matters to a mode that anything is cut off, however little: then a number and its near
// neighbourhood round differently.
constexpr bool sees_inexact(Rounding mode) {
  return lifts_traces(mode) || drops_traces(mode);
}

// The mode `stochastic` with n bits of the word, and the fraction reduced to n bits: 0 < n < 64.
TD_HOST_DEVICE constexpr bool rounds_up_by_few(FewBits how, int n, const Cut& c, uint64_t random) {
  const uint64_t unit = uint64_t{1} << (64 - n), below = c.fraction & (unit - 1), half = unit >> 1;
  uint64_t fraction = c.fraction - below;
  const bool up = how == FewBits::B
      ? below >= half
      : how == FewBits::C && (below > half || (below == half && (c.sticky || (fraction & unit))));
  if (up) fraction += unit;
  if (up && fraction == 0) return true; // the whole gap
  return fraction + (random & ~(unit - 1)) < fraction;
}

// The same by a format's mode and its number of random bits.
TD_HOST_DEVICE constexpr bool rounds_up(const Format& f, bool negative, const Cut& c,
                                        uint64_t random) {
  if (f.random_bits != 0 && f.rounding == Rounding::Stochastic)
    return rounds_up_by_few(f.few_bits, f.random_bits, c, random);
  return rounds_up(f.rounding, negative, c, random);
}

// Whether a finite value beyond the largest finite one is rounded to it: in directed modes that
// point towards zero there, and in rounding to odd, because an infinity is no odd code (IEEE
// 754-2019 section 7.4 for directed modes).
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
