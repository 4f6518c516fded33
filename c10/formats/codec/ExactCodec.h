// The generic codec: correct for every format, one scalar at a time, by integer arithmetic only.
// The fast paths (FastEncode.h, FastStochastic.h, FastDecode.h) must agree with it bit for bit.
#pragma once
#include <c10/formats/codec/Philox.h>
#include <c10/formats/codec/RoundBits.h>
#include <c10/formats/codec/Unpacked.h>
#include <c10/formats/tables/TableCodec.h>
#include <c10/formats/tables/Takum.h>

namespace c10::formats {

// word * 2^-shift, cut at the unit. shift >= 0, of any size.
TD_HOST_DEVICE inline Cut cut(unsigned __int128 word, int shift, bool sticky) {
  if (shift == 0) return {static_cast<uint64_t>(word), 0, sticky};
  if (shift <= 64) {
    const uint64_t below =
        static_cast<uint64_t>(word & ((static_cast<unsigned __int128>(1) << shift) - 1));
    return {static_cast<uint64_t>(word >> shift), below << (64 - shift), sticky};
  }
  if (shift > 191) return {0, 0, sticky || word != 0};
  const int beyond = shift - 64; // bits below the fraction's 64
  const unsigned __int128 high = beyond > 127 ? 0 : word >> beyond;
  const bool lost = beyond > 127 ? word != 0 : word != high << beyond;
  return {static_cast<uint64_t>(high >> 64), static_cast<uint64_t>(high), sticky || lost};
}

TD_HOST_DEVICE inline uint64_t rounded(const Cut& c, const Format& f, bool negative,
                                       uint64_t random) {
  return c.kept + rounds_up(f, negative, c, random);
}

// The second half of UpDown: one code away from 0 or back; zero stays.
TD_HOST_DEVICE inline uint64_t moved(const Format& f, uint64_t magnitude, uint64_t random) {
  if (f.rounding != Rounding::UpDown || magnitude == 0) return magnitude;
  return random >> 63 ? magnitude + 1 : magnitude - 1;
}

// |x| as a fraction of 2^exponent, for |x| < 2^exponent.
TD_HOST_DEVICE inline Cut cut_below(const Unpacked& u, int exponent) {
  return cut(u.significand, exponent - u.exponent + 63, u.sticky);
}

// Posits. A magnitude is a string of bits: regime, exponent, fraction. It is cut after bits - 1
// bits and rounded as an integer.
//   1. e = k * 2^es + x with 0 <= x < 2^es. The regime is k + 1 ones and a zero (k >= 0), or -k
//      zeros and a one.
//   2. The string is regime | x in es bits | the 63 fraction bits; bits - 1 of them are kept.
//   3. Standard rounding (Posit Standard 2022, section 4.1): nearest, ties to the even code;
//      nonzero never becomes 0 or NaR.
TD_HOST_DEVICE inline Cut cut_posit(const Format& f, const Unpacked& u) {
  const int es = f.es;
  const int k = u.exponent >> es;
  const int regime_bits = k >= 0 ? k + 2 : 1 - k;
  const unsigned __int128 regime = k >= 0 ? (uint64_t{1} << regime_bits) - 2 : 1;
  const int x = u.exponent - k * (1 << es);
  const uint64_t fraction = u.significand & ~(uint64_t{1} << 63);
  const unsigned __int128 word = (((regime << es) | static_cast<uint64_t>(x)) << 63) | fraction;
  const int shift = regime_bits + es + 63 - (f.bits - 1);
  Cut c = cut(word, shift, u.sticky);
  const int exponent_bits_cut = shift - 63;
  if (f.rounding == Rounding::Stochastic && exponent_bits_cut > 0) {
    // The neighbours are powers of two, 2^low and 2^(low + step). The probability depends on the
    // value between them, not on the string: (|x| / 2^low - 1) / (2^step - 1).
    const int step = exponent_bits_cut >= es ? 1 << es : 1 << exponent_bits_cut;
    const int above_low = x & (step - 1);
    const unsigned __int128 excess = (static_cast<unsigned __int128>(u.significand) << above_low) -
        (static_cast<unsigned __int128>(1) << 63);
    const uint64_t intervals = (uint64_t{1} << step) - 1;
    c.fraction = static_cast<uint64_t>((excess << 1) / intervals);
    c.sticky = u.sticky || (excess << 1) % intervals != 0;
  }
  return c;
}

TD_HOST_DEVICE inline uint64_t encode_posit(const Format& f, const Unpacked& u, uint64_t random) {
  if (u.cls == Class::Zero) return 0;
  if (u.cls == Class::NaN || (u.cls == Class::Infinite && f.infinity_is_nan())) return f.nan_code();
  if (u.cls == Class::Infinite)
    return u.negative ? (0 - f.max_code()) & f.code_mask() : f.max_code();
  const int limit = f.max_exponent();
  const bool to_zero = f.underflow == Underflow::Zero;
  uint64_t code = 0;
  if (u.exponent >= limit) {
    code = f.max_code();
  } else if (u.exponent >= -limit) {
    code = rounded(cut_posit(f, u), f, u.negative, random);
  } else if (to_zero) {
    code = rounded(cut_below(u, -limit), f, u.negative, random);
  } else {
    code = 1;
  }
  code = moved(f, code, random);
  if (code == 0 && !to_zero) code = 1;
  if (code > f.max_code()) code = f.max_code();
  return u.negative ? (0 - code) & f.code_mask() : code;
}

// Linear takums. A magnitude is a string of bits: a head that gives the exponent (Takum.h), and p =
// bits - 5 - r bits of the fraction.
//   1. The string, cut behind p fraction bits, is rounded as an integer. A carry goes from the
//      fraction to the next exponent, whose string follows. All discarded bits are the fraction's,
//      so probabilities depend on the value.
//   2. A nonzero value becomes neither 0 nor NaR.
TD_HOST_DEVICE inline Cut cut_takum(const Format& f, const Unpacked& u) {
  const TakumHead head = takum_head(u.exponent);
  return cut(
      static_cast<unsigned __int128>(head.string) << 63 | (u.significand & ~(uint64_t{1} << 63)),
      63 - (f.bits - 5 - head.r), u.sticky);
}

TD_HOST_DEVICE inline uint64_t encode_takum(const Format& f, const Unpacked& u, uint64_t random) {
  if (u.cls == Class::Zero) return 0;
  if (u.cls != Class::Finite) return f.nan_code();
  uint64_t code = 1;
  if (u.exponent > f.max_exponent()) code = f.max_code();
  else if (u.exponent >= f.min_exponent()) code = rounded(cut_takum(f, u), f, u.negative, random);
  const auto within = [&f](uint64_t x) {
    const uint64_t bounded = x > f.max_code() ? f.max_code() : x;
    return x == 0 ? 1 : bounded;
  };
  code = within(moved(f, within(code), random));
  return u.negative ? (0 - code) & f.code_mask() : code;
}

// Floats. With e = max(exponent, min_exponent), the significand in units of 2^(e - man_bits) is cut
// and rounded to an integer q. The code is (e - min_exponent) * 2^man_bits + q, because q counts
// its leading bit. A normal number's leading bit raises the exponent field from e - min_exponent by
// one; a subnormal has none and keeps field 0. A carry out of the fraction moves into the field.
TD_HOST_DEVICE inline uint64_t float_magnitude(const Format& f, const Unpacked& u,
                                               uint64_t random) {
  const uint64_t beyond = stops_at_max(f.rounding, u.negative) ? f.max_code() : f.overflow_code();
  if (u.exponent > f.max_exponent() + 1) return beyond;
  const int emin = f.min_exponent();
  const int e = u.exponent > emin ? u.exponent : emin;
  const bool flush = f.subnormals == Subnormals::Flush;
  const uint64_t smallest = uint64_t{1} << f.man_bits;
  uint64_t code = 0;
  if (flush && u.exponent < e) {
    // The neighbours are 0 and the smallest normal number; 0 is the even one.
    code = rounded(cut_below(u, e), f, u.negative, random) ? smallest : 0;
  } else {
    Cut c = cut(u.significand, 63 - f.man_bits + (e - u.exponent), u.sticky);
    const uint64_t base = static_cast<uint64_t>(e - emin) << f.man_bits;
    // The significand decides between even and odd, as in IEEE 754 (section 4.3.1; with one digit
    // none is even). In P3109's formats the code decides. With a fraction the two agree.
    if (f.unsigned_zero()) {
      c.kept += base;
      code = rounded(c, f, u.negative, random);
    } else {
      code = base + rounded(c, f, u.negative, random);
    }
  }
  if (code > f.max_code()) return beyond;
  code = moved(f, code, random);
  if (flush && code < smallest) return 0;
  return code > f.max_code() ? beyond : code;
}

TD_HOST_DEVICE inline uint64_t encode_float(const Format& f, const Unpacked& u, uint64_t random) {
  const uint64_t sign = u.negative ? f.sign_code() : 0;
  uint64_t magnitude = 0;
  switch (u.cls) {
    case Class::Zero: break;
    case Class::NaN: magnitude = f.nan_code(); break;
    case Class::Infinite: magnitude = f.overflow_code(); break;
    case Class::Finite: magnitude = float_magnitude(f, u, random); break;
  }
  return magnitude == 0 && f.unsigned_zero() ? 0 : sign | magnitude;
}

// Fixed point: the value in units of the last place, cut and rounded to an integer.
TD_HOST_DEVICE inline uint64_t encode_fixed(const Format& f, const Unpacked& u, uint64_t random) {
  if (u.cls == Class::Zero || u.cls == Class::NaN) return f.nan_code();
  const uint64_t limit = u.negative ? f.lowest_magnitude() : f.max_code();
  const bool wraps = f.overflow == Overflow::Wrap && u.cls == Class::Finite;
  const int shift = 63 - u.exponent - f.frac_bits;
  uint64_t q = limit;
  if (u.cls == Class::Finite && shift >= 0) {
    q = moved(f, rounded(cut(u.significand, shift, u.sticky), f, u.negative, random), random);
  } else if (wraps) {
    q = shift > -64 ? u.significand << -shift : 0; // only its low bits count
    if (f.rounding == Rounding::UpDown) q += random >> 63 ? 1 : ~uint64_t{0};
  }
  if (!wraps && q > limit) q = limit;
  return (u.negative ? 0 - q : q) & f.code_mask();
}

TD_HOST_DEVICE inline uint64_t encode(const Format& f, const Unpacked& u, uint64_t random = 0) {
  switch (f.kind) {
    case Kind::Posit: return encode_posit(f, u, random);
    case Kind::Takum: return encode_takum(f, u, random);
    case Kind::Fixed: return encode_fixed(f, u, random);
    case Kind::Table: return encode_table(f, u, random);
    default: return encode_float(f, u, random);
  }
}

// Posits and takums: 0, NaR, or the sign of a finite number; then `code` becomes the magnitude's.
TD_HOST_DEVICE inline Unpacked tapered_sign(const Format& f, uint64_t& code) {
  Unpacked u;
  code &= f.code_mask();
  if (code == 0) return u;
  u.cls = code == f.nan_code() ? Class::NaN : Class::Finite;
  u.negative = u.cls == Class::Finite && (code & f.sign_code()) != 0;
  if (u.negative) code = (0 - code) & f.code_mask();
  return u;
}

TD_HOST_DEVICE inline Unpacked decode_posit(const Format& f, uint64_t code) {
  Unpacked u = tapered_sign(f, code);
  if (u.cls != Class::Finite) return u;
  // The string starts at the top of the word; missing bits are zeros.
  uint64_t word = code << (65 - f.bits);
  const bool ones = word >> 63;
  const int run = count_leading_zeros(ones ? ~word : word);
  const int k = ones ? run - 1 : -run;
  word = run >= 63 ? 0 : word << (run + 1);
  const int es = f.es;
  const int x = es ? static_cast<int>(word >> (64 - es)) : 0;
  u.exponent = k * (1 << es) + x;
  u.significand = (uint64_t{1} << 63) | ((word << es) >> 1);
  return u;
}

TD_HOST_DEVICE inline Unpacked decode_takum(const Format& f, uint64_t code) {
  Unpacked u = tapered_sign(f, code);
  if (u.cls != Class::Finite) return u;
  const TakumFields s = takum_fields(f.bits, code);
  u.exponent = s.c;
  u.significand = uint64_t{1} << 63 | s.fraction << (63 - s.fraction_bits);
  return u;
}

TD_HOST_DEVICE inline Unpacked decode_float(const Format& f, uint64_t code) {
  const bool negative = (code & f.sign_code()) != 0;
  const uint64_t magnitude = code & (f.sign_code() - 1);
  Unpacked u;
  if (negative && magnitude == 0 && f.unsigned_zero()) { // the only NaN, which has no sign
    u.cls = Class::NaN;
    return u;
  }
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
  return unpack_integer(fraction | (uint64_t{1} << f.man_bits), negative,
                        field - f.bias - f.man_bits);
}

TD_HOST_DEVICE inline Unpacked decode_fixed(const Format& f, uint64_t code) {
  code &= f.code_mask();
  const bool negative = f.is_signed && (code & f.sign_code()) != 0;
  return unpack_integer(negative ? (0 - code) & f.code_mask() : code, negative, -f.frac_bits);
}

TD_HOST_DEVICE inline Unpacked decode(const Format& f, uint64_t code) {
  switch (f.kind) {
    case Kind::Posit: return decode_posit(f, code);
    case Kind::Takum: return decode_takum(f, code);
    case Kind::Fixed: return decode_fixed(f, code);
    case Kind::Table: return decode_table(f, code);
    default: return decode_float(f, code);
  }
}

} // namespace c10::formats
