// Fields of linear takums of 12 bits and more. (Rounding and the rest: ExactCodec.h. Shorter and
// logarithmic takums are tables.)
//
// Source: Hunhold, "Beating posits at their own game: takum arithmetic", CoNGA 2024, definitions 2
// and 6.
#pragma once
#include <c10/formats/codec/Unpacked.h>

namespace c10::formats {

// The fields of a magnitude's code: a characteristic c, which is an exponent, and the fraction
// behind it.
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
//   D = 1, c >= 0: r = floor(log2(c + 1)), the regime's bits are r, and C = c + 1 - 2^r.
//   D = 0, c < 0:  r = floor(log2(-c)), the regime's bits are 7 - r, and C = c - 1 + 2^(r + 1).
struct TakumHead {
  uint64_t string;
  int r;
};

TD_HOST_DEVICE inline TakumHead takum_head(int c) {
  const int r = 63 - count_leading_zeros(static_cast<uint64_t>(c >= 0 ? c + 1 : -c));
  const int tail = c >= 0 ? c + 1 - (1 << r) : c - 1 + (2 << r);
  return {static_cast<uint64_t>((c >= 0 ? 8 | r : 7 - r) << r | tail), r};
}

} // namespace c10::formats
