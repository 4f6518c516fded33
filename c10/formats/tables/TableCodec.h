// The generic codec of tables: a number between two neighbouring values is rounded to one of them
// as RoundBits.h decides.
//
// The neighbour nearer to 0 counts as the kept part of a magnitude in other formats, and the other
// one as the next magnitude. So modes and random words mean the same here. In stochastic modes the
// fraction is the distance from the inner value divided by that of the two, by their 64 leading
// bits. In other modes the boundary counts as a half.
#pragma once
#include <c10/formats/codec/RoundBits.h>
#include <c10/formats/tables/ValueTable.h>

#include <cmath>

namespace c10::formats {

// The sign of a - b. If both agree in 64 bits and are sticky, it is 0.
TD_HOST_DEVICE inline int compare(const Unpacked& a, const Unpacked& b) {
  const auto sign = [](const Unpacked& u) {
    if (u.cls == Class::Zero) return 0;
    return u.negative ? -1 : 1;
  };
  if (sign(a) != sign(b)) return sign(a) < sign(b) ? -1 : 1;
  if (sign(a) == 0) return 0;
  int larger = 0;
  if (a.exponent != b.exponent) larger = a.exponent < b.exponent ? -1 : 1;
  else if (a.significand != b.significand) larger = a.significand < b.significand ? -1 : 1;
  else larger = int{a.sticky} - int{b.sticky};
  return a.negative ? -larger : larger;
}

// |a - b| by its 64 leading bits, a != b.
TD_HOST_DEVICE inline Unpacked distance(Unpacked a, Unpacked b) {
  if (a.cls == Class::Zero || b.cls == Class::Zero) {
    Unpacked other = a.cls == Class::Zero ? b : a;
    other.negative = false;
    return other;
  }
  const bool adds = a.negative != b.negative;
  if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand)) {
    const Unpacked larger = b;
    b = a;
    a = larger;
  }
  using Wide = unsigned __int128;
  const int shift = a.exponent - b.exponent;
  const Wide large = static_cast<Wide>(a.significand) << 62,
             small = static_cast<Wide>(b.significand) << 62;
  const Wide moved = shift > 126 ? 0 : small >> shift;
  const bool lost = (shift > 126 ? small : small ^ (moved << shift)) != 0 || a.sticky || b.sticky;
  const Wide exact = adds ? large + moved : large - moved - (lost && !adds ? 1 : 0);
  const auto high = static_cast<uint64_t>(exact >> 64);
  const int zeros =
      high ? count_leading_zeros(high) : 64 + count_leading_zeros(static_cast<uint64_t>(exact));
  const Wide normal = exact << zeros;
  Unpacked u;
  u.cls = Class::Finite;
  u.significand = static_cast<uint64_t>(normal >> 64);
  u.sticky = lost || static_cast<uint64_t>(normal) != 0;
  u.exponent = a.exponent + 2 - zeros;
  return u;
}

// Whether u counts as v on a table's logarithms (ValueTable.h): |u - v| < 2^(kLogReach + v's
// exponent).
inline constexpr int kLogReach = -47;
TD_HOST_DEVICE inline bool is_near(const Unpacked& u, const Unpacked& v) {
  if (u.cls != Class::Finite || v.cls != Class::Finite || u.negative != v.negative) return false;
  // Equal in 64 bits; distance() does not handle that.
  const bool same = u.exponent == v.exponent && u.significand == v.significand;
  return same || distance(u, v).exponent < v.exponent + kLogReach;
}

// part / whole as a fraction of 2^-64, part < whole.
TD_HOST_DEVICE inline Cut proportion(const Unpacked& part, const Unpacked& whole) {
  using Wide = unsigned __int128;
  const int below = whole.exponent - part.exponent;
  // Equal in 64 bits.
  if (below < 0 || (below == 0 && part.significand >= whole.significand))
    return {0, ~uint64_t{0}, true};
  const Wide dividend = static_cast<Wide>(part.significand) << (below == 0 ? 64 : 63);
  const auto quotient = static_cast<uint64_t>(dividend / whole.significand);
  const int shift = below == 0 ? 0 : below - 1;
  Cut c;
  c.fraction = shift > 63 ? 0 : quotient >> shift;
  c.sticky = dividend % whole.significand != 0 ||
      (shift > 63 ? quotient : quotient ^ (c.fraction << shift)) != 0 || part.sticky ||
      whole.sticky;
  return c;
}

TD_HOST_DEVICE inline uint64_t code_of_rank(const TableView& t, int64_t rank, bool negative) {
  if (rank == t.zero) return negative ? t.minus_zero : t.plus_zero;
  return t.codes[rank];
}

// The second half of the mode up_down: one value away from 0 or back. 0 stays. A move out of the
// range gives the result for numbers beyond it.
TD_HOST_DEVICE inline uint64_t moved_in_table(const TableView& t, int64_t rank, bool negative,
                                              uint64_t random) {
  if (rank == t.zero) return code_of_rank(t, rank, negative);
  const bool below = t.values[rank] < 0;
  const int64_t to = rank + ((random >> 63 != 0) == below ? -1 : 1);
  if (to == t.zero && t.minpos) return code_of_rank(t, rank, negative);
  if (to < 0) return t.low.saturates ? t.codes[0] : t.low.code;
  if (to >= t.size) return t.high.saturates ? t.codes[t.size - 1] : t.high.code;
  return code_of_rank(t, to, negative);
}

TD_HOST_DEVICE inline uint64_t encode_table(const Format& f, Unpacked u, uint64_t random) {
  const TableView& t = view_of(f);
  if (u.cls == Class::NaN) return f.nan_code();
  const bool refused = u.negative && u.cls != Class::Zero && t.negative_is_nan;
  if (refused && t.zero != 0) return f.nan_code();
  if (u.cls == Class::Infinite) return u.negative ? t.low.infinity : t.high.infinity;
  if (u.cls == Class::Zero && t.zero >= 0) return code_of_rank(t, t.zero, u.negative);

  // The last value that is not above the number.
  int64_t first = -1, last = t.size - 1;
  while (first < last) {
    const int64_t middle = (first + last + 1) / 2;
    if (compare(unpack(t.values[middle]), u) <= 0) first = middle;
    else last = middle - 1;
  }
  if (t.on_logarithms) {
    for (int64_t rank = last; rank <= last + 1; ++rank) {
      if (rank >= 0 && rank < t.size && is_near(u, unpack(t.values[rank])))
        first = rank, u = unpack(t.values[rank]);
    }
  }
  const int64_t at = first, most = t.size - 1;
  const bool exact = at >= 0 && compare(unpack(t.values[at]), u) == 0;
  if (exact)
    return f.rounding == Rounding::UpDown ? moved_in_table(t, at, u.negative, random)
                                          : code_of_rank(t, at, u.negative);

  // Its neighbours, the inner one first, and its side of their boundary.
  const bool below = at < 0, above = at == most;
  const TableEnd& end = below ? t.low : t.high;
  if ((below || above) && end.saturates) {
    return f.rounding == Rounding::UpDown ? moved_in_table(t, below ? 0 : most, u.negative, random)
                                          : code_of_rank(t, below ? 0 : most, u.negative);
  }
  const double lower = below ? end.next : t.values[at], upper = above ? end.next : t.values[at + 1];
  const Unpacked& limit = below ? t.low_limit : t.high_limit;
  const Unpacked& boundary = below || above ? limit : t.boundaries[at];
  bool lower_is_inner =
      std::fabs(lower) < std::fabs(upper) || (std::fabs(lower) == std::fabs(upper) && u.negative);
  if (below || above) lower_is_inner = above;
  const int64_t inner = lower_is_inner ? at : at + 1, outer = lower_is_inner ? at + 1 : at;
  const bool beyond = below || above;
  const bool outwards_is_down = !lower_is_inner;
  if (!beyond && t.minpos && inner == t.zero) {
    return f.rounding == Rounding::UpDown ? moved_in_table(t, outer, u.negative, random)
                                          : code_of_rank(t, outer, u.negative);
  }
  if (beyond && !refused && stops_at_max(f.rounding, outwards_is_down))
    return code_of_rank(t, inner, u.negative);
  if (beyond && compare(u, unpack(end.next)) * (outwards_is_down ? -1 : 1) >= 0) return end.code;

  Cut c;
  if (f.rounding == Rounding::Stochastic) {
    c = proportion(distance(u, unpack(lower_is_inner ? lower : upper)),
                   distance(unpack(upper), unpack(lower)));
  } else {
    const int side = t.on_logarithms && is_near(u, boundary)
        ? 0
        : compare(u, boundary) * (outwards_is_down ? -1 : 1);
    c.fraction = (side >= 0 ? uint64_t{1} << 63 : 0) | (side != 0 ? uint64_t{1} << 62 : 0);
  }
  // Whether the inner one counts as odd; beyond the range its code decides.
  const bool odd = beyond ? (t.codes[inner] & 1) != 0 : (t.lower_is_odd[at] != 0) == lower_is_inner;
  if (f.rounding == Rounding::ToOdd) {
    c.kept = odd;
  } else {
    switch (t.ties) {
      case Ties::Even: c.kept = odd; break;
      case Ties::Zero: c.kept = 0; break;
      case Ties::Away: c.kept = 1; break;
      case Ties::Up: c.kept = !outwards_is_down; break;
      case Ties::Down: c.kept = outwards_is_down; break;
    }
  }
  const bool out = rounds_up(f, outwards_is_down, c, random);
  if (out && beyond) return end.code;
  const int64_t rank = out ? outer : inner;
  return f.rounding == Rounding::UpDown ? moved_in_table(t, rank, u.negative, random)
                                        : code_of_rank(t, rank, u.negative);
}

TD_HOST_DEVICE inline Unpacked decode_table(const Format& f, uint64_t code) {
  return unpack(view_of(f).by_code[code & f.code_mask()]);
}

} // namespace c10::formats
