// The generic codec: right for every format, one scalar at a time, integer arithmetic only. The fast paths (FastCodec.h) must agree
// with it bit for bit.
#pragma once
#include <c10/util/RoundBits.h>
#include <c10/util/Unpacked.h>

namespace c10::formats {

// A magnitude being rounded: `kept` whole codes, then what lies below them.
struct Cut {
  uint64_t kept{0};
  bool half{false};
  bool rest{false};
};

// word * 2^-shift, cut at the unit. shift >= 0, of any size.
TD_HOST_DEVICE inline Cut cut(unsigned __int128 word, int shift, bool sticky) {
  if (shift == 0) return {static_cast<uint64_t>(word), false, sticky};
  if (shift > 127) return {0, false, sticky || word != 0};
  const unsigned __int128 half = static_cast<unsigned __int128>(1) << (shift - 1);
  return {static_cast<uint64_t>(word >> shift), (word & half) != 0, sticky || (word & (half - 1)) != 0};
}

TD_HOST_DEVICE inline uint64_t rounded(const Cut& c, const Format& f, bool negative) {
  return c.kept + rounds_up(f.rounding, negative, c.kept & 1, c.half, c.rest);
}

// Posits. A magnitude is a string of bits: regime, exponent, fraction, cut after bits - 1 of them and rounded as an integer.
//   1. e = k * 2^es + x with 0 <= x < 2^es. The regime is k + 1 ones and a zero (k >= 0), or -k zeros and a one.
//   2. The string is regime | x in es bits | the 63 fraction bits; its first bits - 1 bits are kept.
//   3. Standard rounding (Posit Standard 2022, section 4.1): nearest, ties to the even code; nonzero never becomes 0 or NaR.
TD_HOST_DEVICE inline uint64_t encode_posit(const Format& f, const Unpacked& u) {
  if (u.cls == Class::Zero) return 0;
  if (u.cls != Class::Finite) return f.nan_code();
  const int limit = f.max_exponent();
  uint64_t code = 0;
  if (u.exponent >= limit) {
    code = f.max_code();
  } else if (u.exponent < -limit) {
    code = 1;
  } else {
    const int es = f.exp_bits;
    const int k = u.exponent >> es;
    const int regime_bits = k >= 0 ? k + 2 : 1 - k;
    const unsigned __int128 regime = k >= 0 ? ((uint64_t{1} << (k + 1)) - 1) << 1 : 1;
    const uint64_t x = static_cast<uint64_t>(u.exponent - k * (1 << es));
    const uint64_t fraction = u.significand & ~(uint64_t{1} << 63);
    const unsigned __int128 word = (((regime << es) | x) << 63) | fraction;
    code = rounded(cut(word, regime_bits + es + 63 - (f.bits - 1), u.sticky), f, u.negative);
    if (code == 0) code = 1;
    if (code > f.max_code()) code = f.max_code();
  }
  return u.negative ? (0 - code) & f.code_mask() : code;
}

// Floats. With e = max(exponent, min_exponent), the significand in units of 2^(e - man_bits) is cut and rounded to an integer q.
// q counts its leading bit, so (e - min_exponent) * 2^man_bits + q is the code: a normal's leading bit raises the exponent field from
// e - min_exponent by one, a subnormal has none and keeps field 0, and a carry out of the fraction goes where it must.
TD_HOST_DEVICE inline uint64_t encode_float(const Format& f, const Unpacked& u) {
  const uint64_t sign = u.negative ? f.sign_code() : 0;
  if (u.cls == Class::Zero) return sign;
  if (u.cls == Class::NaN) return sign | f.nan_code();
  if (u.cls == Class::Infinite) return sign | f.overflow_code();
  const uint64_t beyond = sign | (stops_at_max(f.rounding, u.negative) ? f.max_code() : f.overflow_code());
  if (u.exponent > f.max_exponent() + 1) return beyond;
  const int e = u.exponent > f.min_exponent() ? u.exponent : f.min_exponent();
  if (f.subnormals == Subnormals::Flush && u.exponent < e) {
    // The neighbours are 0 and the smallest normal number; 0 is the even one of the two.
    const bool at_half = u.exponent == e - 1;
    const bool rest = !at_half || u.significand != uint64_t{1} << 63 || u.sticky;
    const bool up = rounds_up(f.rounding, u.negative, false, at_half, rest);
    return sign | (up ? uint64_t{1} << f.man_bits : 0);
  }
  const uint64_t q = rounded(cut(u.significand, 63 - f.man_bits + (e - u.exponent), u.sticky), f, u.negative);
  const uint64_t code = (static_cast<uint64_t>(e - f.min_exponent()) << f.man_bits) + q;
  return code > f.max_code() ? beyond : sign | code;
}

TD_HOST_DEVICE inline uint64_t encode(const Format& f, const Unpacked& u) {
  return f.is_posit() ? encode_posit(f, u) : encode_float(f, u);
}

TD_HOST_DEVICE inline Unpacked decode_posit(const Format& f, uint64_t code) {
  Unpacked u;
  code &= f.code_mask();
  if (code == 0) return u;
  if (code == f.nan_code()) {
    u.cls = Class::NaN;
    return u;
  }
  u.cls = Class::Finite;
  u.negative = (code & f.sign_code()) != 0;
  if (u.negative) code = (0 - code) & f.code_mask();
  // The string starts at the top of the word; what is not there counts as zeros.
  uint64_t word = code << (65 - f.bits);
  const bool ones = word >> 63;
  const int run = count_leading_zeros(ones ? ~word : word);
  const int k = ones ? run - 1 : -run;
  word = run + 1 > 63 ? 0 : word << (run + 1);
  const int es = f.exp_bits;
  const int x = es ? static_cast<int>(word >> (64 - es)) : 0;
  u.exponent = k * (1 << es) + x;
  u.significand = (uint64_t{1} << 63) | ((word << es) >> 1);
  return u;
}

TD_HOST_DEVICE inline Unpacked decode_float(const Format& f, uint64_t code) {
  const bool negative = (code & f.sign_code()) != 0;
  const uint64_t magnitude = code & (f.sign_code() - 1);
  Unpacked u;
  u.negative = negative;
  if (magnitude > f.max_code()) {
    u.cls = f.has_infinity() && magnitude == f.max_code() + 1 ? Class::Infinite : Class::NaN;
    return u;
  }
  const uint64_t fraction = magnitude & ((uint64_t{1} << f.man_bits) - 1);
  const int field = static_cast<int>(magnitude >> f.man_bits);
  if (field == 0) {
    if (f.subnormals == Subnormals::Flush) return u;
    return unpack_integer(fraction, negative, f.min_exponent() - f.man_bits);
  }
  return unpack_integer(fraction | (uint64_t{1} << f.man_bits), negative, field - f.bias - f.man_bits);
}

TD_HOST_DEVICE inline Unpacked decode(const Format& f, uint64_t code) {
  return f.is_posit() ? decode_posit(f, code) : decode_float(f, code);
}

} // namespace c10::formats
