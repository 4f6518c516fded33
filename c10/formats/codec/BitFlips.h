// Flips a random significand bit of a number's code, as faults do in hardware that computes with
// the format.
#pragma once
#include <c10/formats/NumberFormat.h>
#include <c10/formats/codec/Unpacked.h>

#include <cstdint>

namespace c10::formats {

// The number of significand bits in a magnitude's code; 0 for an infinity or NaN.
TD_HOST_DEVICE inline int significand_length(const Format& f, uint64_t magnitude) {
  if (f.is_fixed()) return f.significand_bits();
  if (magnitude > f.max_code()) return 0;
  if (!f.is_tapered()) return f.man_bits;
  if (magnitude == 0) return 0;
  if (f.is_takum()) {
    const int regime = static_cast<int>(magnitude >> (f.bits - 5) & 7);
    return f.longest_fraction() - (magnitude >> (f.bits - 2) & 1 ? regime : 7 - regime);
  }
  const uint64_t word = magnitude << (65 - f.bits); // the regime's run at the top
  const int run = count_leading_zeros(word >> 63 ? ~word : word);
  const int length = f.bits - 2 - run - f.es;
  return length > 0 ? length : 0;
}

// random: 32 bits that choose one of a finite number's bits. Other codes, and those without
// significand bits, stay.
TD_HOST_DEVICE inline uint64_t flipped(const Format& f, uint64_t code, uint32_t random) {
  // In a table, which bits are significand is unknown.
  if (f.is_table()) return code ^ (uint64_t{1} << ((uint64_t{random} * f.bits) >> 32));
  const bool twos_complement = f.kind != Kind::Float;
  const bool negative = f.is_signed && (code & f.sign_code()) != 0;
  if (f.is_tapered() && code == f.nan_code()) return code;
  uint64_t magnitude = code;
  if (negative) magnitude = twos_complement ? (0 - code) & f.code_mask() : code & ~f.sign_code();
  if (f.unsigned_zero() && negative && magnitude == 0) return code; // NaN
  const int length = significand_length(f, magnitude);
  if (length == 0) return code;
  magnitude ^= uint64_t{1} << ((uint64_t{random} * static_cast<uint64_t>(length)) >> 32);
  if (f.is_fixed()) {
    const uint64_t most = negative ? f.lowest_magnitude() : f.max_code();
    magnitude = magnitude < most ? magnitude : most;
  }
  if (magnitude == 0 && f.unsigned_zero()) return 0;
  if (!negative) return magnitude;
  return twos_complement ? (0 - magnitude) & f.code_mask() : magnitude | f.sign_code();
}

} // namespace c10::formats
