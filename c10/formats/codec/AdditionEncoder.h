// float32 numbers to a format's codes, to nearest, ties to even, by one addition:
// AdditionRound.h's, of which the sum's last digits are the rounded number in last places, and so
// its code but for an offset. Both numbers are looked up by the number's exponent.
//
// What the addition does not decide says so, and is asked of another encoder: overflow, infinities,
// NaN, and posits where the cut is in the exponent.
#pragma once
#include <c10/formats/codec/FastStochastic.h>
#include <c10/formats/codec/MachineBits.h>

namespace c10::formats {

struct AdditionEncoder {
  // Of magnitudes with this exponent: what is added, and what takes the sum's bits to the code.
  // Where the sum does not know, it is infinite.
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

  // Floats with subnormals and two zeros, of codes that grow with magnitudes; posits.
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
  // first: the code of the number that is 1 in the place of `digits` digits above the last, 2^last;
  // more: last places that magic is odd by.
  static Row row(int last, uint32_t first, int digits, bool odd) {
    if (last + Machine<float>::fraction >= kBias) return unknown(); // 1.5 times that is too large
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
    // Of 0 and float32's subnormal numbers x: the sum is x - 2^-126, whose bits count downwards
    // from those of -2^-126, as code 0 downwards through codes that no format has. So 0 is known,
    // and they are not.
    if (field == 0)
      return {-power_of_two<float>(1 - kBias),
              0 - bits_as<uint32_t>(-power_of_two<float>(1 - kBias))};
    const int e = field - kBias, k = e >> f.es, regime = k < 0 ? 1 - k : k + 2,
              digits = f.bits - 1 - regime - f.es;
    if (field == 255 || digits < 0) return unknown();
    const uint32_t string = k < 0 ? 1 : ((uint32_t{1} << (k + 1)) - 1) << 1,
                   exponent = static_cast<uint32_t>(e - k * (1 << f.es));
    // Ties go to the even code, of which the last digit is the exponent's, or the regime's, where
    // there is no fraction.
    const bool odd_code = digits == 0 && (f.es > 0 ? (e & 1) != 0 : e < 0);
    const bool odd_magic = digits == 0 && !odd_code;
    return row(e - digits, (string << f.es | exponent) << digits, digits, odd_magic);
  }
};

} // namespace c10::formats
