// float32 numbers to a format's codes, to nearest, ties to even, by one addition. As in
// AdditionRound.h, the sum's last digits are the rounded number in last places; plus an offset,
// they are its code. Magic number and offset are looked up by the number's exponent.
//
// The result says if the addition is undecided, and another encoder is used: for overflow,
// infinities, NaN, and posits whose exponent is cut.
#pragma once
#include <c10/formats/codec/FastStochastic.h>
#include <c10/formats/codec/MachineBits.h>

namespace c10::formats {

struct AdditionEncoder {
  // For magnitudes with this exponent: the number to add, and the offset from the sum's bits to the
  // code. For undecided ones the sum is infinite.
  struct alignas(8) Row {
    float magic;
    uint32_t offset;
  };
  struct Table {
    Row of_exponent[256];
  };

  Table table;
  uint32_t largest, sign_code, mask; // mask: of a code
  int sign_shift;

  explicit AdditionEncoder(const Format& f)
      : largest(static_cast<uint32_t>(f.max_code())),
        sign_code(static_cast<uint32_t>(f.sign_code())),
        mask(static_cast<uint32_t>(f.code_mask())),
        sign_shift(32 - f.bits) {
    for (int field = 0; field < 256; ++field)
      table.of_exponent[field] = f.is_posit() ? posit_row(f, field) : float_row(f, field);
  }

  // Whether it takes the format: posits, and floats with subnormals, two zeros, and codes that grow
  // with magnitudes.
  static bool serves(const Format& f) {
    if (f.rounding != Rounding::NearestEven || f.bits > 16) return false;
    if (f.is_posit()) return f.underflow == Underflow::Minpos;
    return f.kind == Kind::Float && f.subnormals == Subnormals::Gradual && !f.unsigned_zero() &&
        f.man_bits >= 1;
  }

  TD_HOST_DEVICE void fill(Table& shared, int thread, int threads) const {
    for (int i = thread; i < 256; i += threads) shared.of_exponent[i] = table.of_exponent[i];
  }

  template <bool posits>
  TD_INLINE MaybeCode<float> encode(float x, const Table& shared) const {
    const uint32_t bits = bits_as<uint32_t>(x);
    const Row row = shared.of_exponent[bits >> 23 & 255];
    const uint32_t code = bits_as<uint32_t>(__builtin_fabsf(x) + row.magic) + row.offset;
    if constexpr (!posits) return {code | (bits >> sign_shift & sign_code), code > largest};
    const uint32_t negative = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
    return {((code ^ negative) - negative) & mask, code > largest};
  }

 private:
  static constexpr int kBias = Machine<float>::bias;

  static Row unknown() { return {bits_as<float>(infinity_bits<float>()), 0}; }
  // first: the code of the number with a 1 `digits` digits above the last place 2^last, and zeros
  // below. odd: makes magic odd by one last place.
  static Row row(int last, uint32_t first, int digits, bool odd) {
    // the magic number would overflow
    if (last + Machine<float>::fraction >= kBias) return unknown();
    const float magic = 1.5F * power_of_two<float>(last + Machine<float>::fraction) +
        (odd ? power_of_two<float>(last) : 0);
    return {magic, first - (uint32_t{1} << digits) - bits_as<uint32_t>(magic)};
  }

  static Row float_row(const Format& f, int field) {
    if (field == 255 || field - kBias > f.max_exponent()) return unknown();
    const int least = f.lsb_exponent() + f.man_bits; // exponent of the smallest normal number
    const int e = field - kBias > least ? field - kBias : least;
    return row(e - f.man_bits, static_cast<uint32_t>(e - least + 1) << f.man_bits, f.man_bits,
               false);
  }

  static Row posit_row(const Format& f, int field) {
    // For 0 and float32's subnormal numbers x: the sum is x - 2^-126. Its bits count downwards from
    // those of -2^-126, as code 0 counts down through codes that no format has. So 0 is decided,
    // and subnormals are not.
    if (field == 0)
      return {-power_of_two<float>(1 - kBias),
              0 - bits_as<uint32_t>(-power_of_two<float>(1 - kBias))};
    const int e = field - kBias, k = e >> f.es, regime = k < 0 ? 1 - k : k + 2,
              digits = f.bits - 1 - regime - f.es;
    if (field == 255 || digits < 0) return unknown();
    const uint32_t string = k < 0 ? 1 : ((uint32_t{1} << (k + 1)) - 1) << 1,
                   exponent = static_cast<uint32_t>(e - k * (1 << f.es));
    // Ties go to the even code. Without a fraction, its last digit is the exponent's or the
    // regime's.
    const bool odd_code = digits == 0 && (f.es > 0 ? (e & 1) != 0 : e < 0);
    const bool odd_magic = digits == 0 && !odd_code;
    return row(e - digits, (string << f.es | exponent) << digits, digits, odd_magic);
  }
};

} // namespace c10::formats
