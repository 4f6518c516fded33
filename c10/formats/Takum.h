// Takums of 12 bits and more: what their strings say, and the numbers of logarithmic ones. (Rounding and the rest: ExactCodec.h.)
//
// A logarithmic takum is e^(l / 2), l a fixed-point number. It is irrational: the value is that number rounded to 51 significant bits, a boundary
// to 52, as in the tables of shorter ones (torch_dtypes/tables/tapered.py), so that float64 leaves arithmetic the two bits by which it rounds to odd.
// Source: Hunhold, "Beating posits at their own game: takum arithmetic", CoNGA 2024, definitions 2 and 6.
#pragma once
#include <c10/formats/TableCodec.h>

#include <cmath>
#include <span>

namespace c10::formats {

// What a magnitude's code says: a characteristic c, which is an exponent or the integer below l, and the fraction behind it.
struct TakumFields {
  int c, fraction_bits;
  uint64_t fraction;
};

TD_HOST_DEVICE inline TakumFields takum_fields(int bits, uint64_t code) {
  const bool upwards = code >> (bits - 2) & 1;
  const int regime = static_cast<int>(code >> (bits - 5) & 7);
  const int r = upwards ? regime : 7 - regime, p = bits - 5 - r;
  const int tail = static_cast<int>(code >> p & ((uint64_t{1} << r) - 1));
  return {upwards ? (1 << r) - 1 + tail : 1 - (2 << r) + tail, p, code & ((uint64_t{1} << p) - 1)};
}

// The bits before the fraction: direction D, three bits of regime, r bits of C.
//   D says whether c is at least 0: then r = floor(log2(c + 1)), the regime's bits are r and C = c + 1 - 2^r; else r = floor(log2(-c)), the bits
//   are 7 - r and C = c - 1 + 2^(r + 1).
struct TakumHead {
  uint64_t string;
  int r;
};

TD_HOST_DEVICE inline TakumHead takum_head(int c) {
  const int r = 63 - count_leading_zeros(static_cast<uint64_t>(c >= 0 ? c + 1 : -c));
  const int tail = c >= 0 ? c + 1 - (1 << r) : c - 1 + (2 << r);
  return {static_cast<uint64_t>((c >= 0 ? 8 | r : 7 - r) << r | tail), r};
}

#ifndef __CUDA_ARCH__ // the GPU has no logarithmic takums

// magnitude * 2^(exponent - 127), bit 127 of the magnitude set.
struct WideNumber {
  unsigned __int128 magnitude{static_cast<unsigned __int128>(1) << 127};
  int exponent{0};
};

// Cut at its 128th bit.
inline WideNumber product(const WideNumber& a, const WideNumber& b) {
  using Wide = unsigned __int128;
  const auto high = [](Wide x) { return static_cast<Wide>(static_cast<uint64_t>(x >> 64)); };
  const auto low = [](Wide x) { return static_cast<Wide>(static_cast<uint64_t>(x)); };
  const Wide cross = high(a.magnitude) * low(b.magnitude), other = low(a.magnitude) * high(b.magnitude);
  const Wide middle = low(cross) + low(other) + high(low(a.magnitude) * low(b.magnitude));
  const Wide top = high(a.magnitude) * high(b.magnitude) + high(cross) + high(other) + high(middle);
  if (top >> 127) return {top, a.exponent + b.exponent + 1};
  return {top << 1 | (middle >> 63 & 1), a.exponent + b.exponent};
}

// e^(l / 2) for l of 28 bits behind the point, as a product of four: within 2^-110 of it. A value's last bit could be wrong only where the number
// lies that near to the middle of two, of which there is none to expect among 2^33 of them.
class TakumPowers {
 public:
  static constexpr int kFraction = 28;
  static const TakumPowers& get() {
    static const TakumPowers made;
    return made;
  }
  WideNumber of(int c, uint64_t fraction) const {
    return product(product(whole_[c + 255], high_[fraction >> 18]), product(middle_[fraction >> 9 & 511], low_[fraction & 511]));
  }

 private:
  TakumPowers() {
    WideNumber up = exponential(1, false), down = exponential(1, true);
    fill(std::span(whole_).subspan(255), up);
    WideNumber x;
    for (int c = 1; c <= 255; ++c) whole_[255 - c] = x = product(x, down);
    fill(high_, exponential(kFraction + 1 - 18, false));
    fill(middle_, exponential(kFraction + 1 - 9, false));
    fill(low_, exponential(kFraction + 1, false));
  }
  // The powers of x, from the 0th on.
  static void fill(std::span<WideNumber> powers, const WideNumber& x) {
    for (size_t i = 1; i < powers.size(); ++i) powers[i] = product(powers[i - 1], x);
  }
  // e^(2^-k), or e^(-2^-k), by its series.
  static WideNumber exponential(int k, bool negative) {
    unsigned __int128 term = static_cast<unsigned __int128>(1) << 127, sum = term;
    for (unsigned n = 1; term != 0; ++n) {
      term = (term >> k) / n;
      sum = negative && n % 2 ? sum - term : sum + term;
    }
    return sum >> 127 ? WideNumber{sum, 0} : WideNumber{sum << 1, -1};
  }

  WideNumber whole_[510], high_[1024], middle_[512], low_[512];
};

// The value of a magnitude's code, to that many significant bits. (A string of one bit more has the boundary between two codes.)
inline Unpacked log_takum(int bits, uint64_t code, int significant) {
  const TakumFields s = takum_fields(bits, code);
  const WideNumber x = TakumPowers::get().of(s.c, s.fraction << (TakumPowers::kFraction - s.fraction_bits));
  const int cut = 128 - significant;
  return unpack_integer(static_cast<uint64_t>(x.magnitude >> cut) + static_cast<uint64_t>(x.magnitude >> (cut - 1) & 1), false,
                        x.exponent + 1 - significant);
}

inline constexpr int kLogTakumBits = 51;

// |x| in codes: the last one that is not above it, and the part of the gap as tables have it (TableCodec.h). Beyond the ends, 0 and the largest.
inline Cut cut_log_takum(const Format& f, Unpacked u) {
  u.negative = false;
  const auto is_above = [&](uint64_t code) { return compare(log_takum(f.bits, code, kLogTakumBits), u) > 0; };
  // By float64's logarithm, at most a code off; fractions have 27 bits at most.
  const double l = 2 * (std::log(std::ldexp(static_cast<double>(u.significand), -63)) + u.exponent * 0.69314718055994530942);
  if (l < -255) return {};
  const int c = l >= 255 ? 254 : static_cast<int>(std::floor(l));
  const TakumHead head = takum_head(c);
  const int p = f.bits - 5 - head.r;
  uint64_t code = l >= 255 ? f.max_code() : (head.string << p) + static_cast<uint64_t>(std::ldexp(l - c, p));
  while (code > 0 && (code > f.max_code() || is_above(code))) --code;
  while (code < f.max_code() && !is_above(code + 1)) ++code;
  Cut cut{code, 0, false};
  if (code == 0 || code == f.max_code()) return cut;
  const Unpacked lower = log_takum(f.bits, code, kLogTakumBits);
  if (compare(lower, u) == 0) return cut;
  if (f.rounding == Rounding::Stochastic) {
    const Cut part = proportion(distance(u, lower), distance(log_takum(f.bits, code + 1, kLogTakumBits), lower));
    return {code, part.fraction, part.sticky};
  }
  const int side = compare(u, log_takum(f.bits + 1, 2 * code + 1, kLogTakumBits + 1));
  return {code, (side >= 0 ? uint64_t{1} << 63 : 0) | (side != 0 ? uint64_t{1} << 62 : 0), false};
}

#endif

} // namespace c10::formats
