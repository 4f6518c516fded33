// Sums of products without any rounding: a fixed-point number wide enough for every product of two
// values of a format. Its digits of 32 bits stay unnormalised, so adding a product touches a few
// digits and carries nothing. For posits this is the quire.
//
// Sources: Kulisch, "Computer arithmetic and validity" (2013), chapter 8; Posit Standard (2022),
// section 3.4 (quire).
#pragma once
#include <c10/formats/codec/Unpacked.h>

namespace c10::formats {

// A finite value as an integer times a power of two, mantissa * 2^exponent. The mantissa has no
// more bits than the format.
struct Term {
  int64_t mantissa{0};
  int32_t exponent{0};
};

// x: a value of the format.
TD_HOST_DEVICE inline Term term_of(const Format& f, double x) {
  const uint64_t bits = double_bits(x);
  const int field = int(bits >> 52) & 0x7ff;
  int64_t mantissa =
      static_cast<int64_t>((bits & ((uint64_t{1} << 52) - 1)) | (field ? uint64_t{1} << 52 : 0));
  if (mantissa == 0) return {0, f.lsb_exponent()};
  const int64_t magnitude = mantissa;
  int exponent = (field ? field : 1) - 1075;
  // Drop the zeros behind the format's last digit.
  int drop = 53 - f.significand_bits();
  if (drop < f.lsb_exponent() - exponent) drop = f.lsb_exponent() - exponent;
  drop = drop < 0 ? 0 : drop;
  mantissa = magnitude >> drop;
  return {bits >> 63 ? -mantissa : mantissa, exponent + drop};
}

// kDigits: the digits in memory. digits_of(): the digits that a format needs.
template <int kDigits>
class ExactSumOf {
 public:
  static constexpr int64_t kMaxProducts = int64_t{1} << 30;

  // Takes products of two values, and single values (products with 1, which the format may lack).
  TD_HOST_DEVICE explicit ExactSumOf(const Format& f) : low_(low(f)), used_(digits_of(f)) {
    clear();
  }

  TD_HOST_DEVICE static int digits_of(const Format& f) { return (top(f) - low(f)) / 32 + 4; }

  TD_HOST_DEVICE void clear() {
    for (int i = 0; i < used_; ++i) digits_[i] = 0;
  }

  // For mantissas of at most 15 bits: product and shift fit one word.
  TD_INLINE void add_narrow(const Term& a, const Term& b) {
    const int place = a.exponent + b.exponent - low_;
    const int64_t shifted = (a.mantissa * b.mantissa) * (int64_t{1} << (place & 31));
    int64_t* d = digits_ + (place >> 5);
    d[0] += shifted & 0xffffffff;
    d[1] += shifted >> 32;
  }

  // For any format.
  TD_HOST_DEVICE inline void add(const Term& a, const Term& b) {
    const __int128 product = static_cast<__int128>(a.mantissa) * b.mantissa;
    if (product == 0) return;
    const bool negative = product < 0;
    unsigned __int128 rest = static_cast<unsigned __int128>(negative ? -product : product);
    const int place = a.exponent + b.exponent - low_;
    const int shift = place & 31;
    int64_t* d = digits_ + (place >> 5);
    int64_t piece =
        static_cast<int64_t>(static_cast<uint32_t>(static_cast<uint64_t>(rest) << shift));
    rest >>= 32 - shift;
    for (;; ++d) {
      *d += negative ? -piece : piece;
      if (rest == 0) break;
      piece = static_cast<int64_t>(static_cast<uint32_t>(rest));
      rest >>= 32;
    }
  }

  // Each product adds less than 2^32 to a digit, which holds 2^63: enough for 2^30 products.
  TD_HOST_DEVICE void normalise() {
    int64_t carry = 0;
    for (int i = 0; i + 1 < used_; ++i) {
      const int64_t v = digits_[i] + carry;
      digits_[i] = v & 0xffffffff;
      carry = v >> 32;
    }
    digits_[used_ - 1] += carry;
  }

  // The sum, exactly (64 bits and sticky). Without products, or if they cancel: plus zero.
  TD_HOST_DEVICE Unpacked value() const {
    ExactSumOf s = *this;
    return s.taken();
  }
  // The same, for a sum that will not be used again.
  TD_HOST_DEVICE Unpacked taken() {
    normalise();
    const bool negative = digits_[used_ - 1] < 0;
    if (negative) {
      for (int i = 0; i < used_; ++i) digits_[i] = -digits_[i];
      normalise();
    }
    int top = used_ - 1;
    while (top > 0 && digits_[top] == 0) --top;
    Unpacked u;
    if (digits_[top] == 0) return u;
    unsigned __int128 leading = 0;
    for (int i = top; i > top - 4; --i)
      leading = leading << 32 | (i >= 0 ? static_cast<uint64_t>(digits_[i]) : 0);
    const int zeros = count_leading_zeros(static_cast<uint64_t>(leading >> 64));
    leading <<= zeros;
    u.cls = Class::Finite;
    u.negative = negative;
    u.significand = static_cast<uint64_t>(leading >> 64);
    u.exponent = low_ + 32 * top + 31 - zeros;
    u.sticky = static_cast<uint64_t>(leading) != 0;
    for (int i = top - 4; i >= 0 && !u.sticky; --i) u.sticky = digits_[i] != 0;
    return u;
  }

 private:
  TD_HOST_DEVICE static int low(const Format& f) {
    return f.lsb_exponent() < 0 ? 2 * f.lsb_exponent() : f.lsb_exponent();
  }
  TD_HOST_DEVICE static int top(const Format& f) {
    return f.max_exponent() + 1 > 0 ? 2 * (f.max_exponent() + 1) : f.max_exponent() + 1;
  }

  int low_;  // the weight of digit 0's last bit, as a power of two
  int used_;
  int64_t digits_[kDigits];
};

inline constexpr int kMostDigits = 144; // e11m52: 2 * (1024 + 1074) bits, and room for carries
using ExactSum = ExactSumOf<kMostDigits>;

// u / n, truncated to 64 bits and sticky.
TD_HOST_DEVICE inline Unpacked divided(const Unpacked& u, uint64_t n) {
  if (u.cls != Class::Finite || n == 1) return u;
  const int zeros = count_leading_zeros(n);
  // significand * 2^64 / (n * 2^zeros): between 2^63 and 2^65.
  const unsigned __int128 numerator = static_cast<unsigned __int128>(u.significand) << 63;
  const uint64_t divisor = n << zeros;
  unsigned __int128 q = numerator / divisor; // 2^62 < q < 2^64
  Unpacked r = u;
  r.sticky = u.sticky || numerator % divisor != 0;
  r.exponent = u.exponent + zeros - 63;
  uint64_t significand = static_cast<uint64_t>(q);
  if (!(significand >> 63)) {
    // One more quotient bit, from the remainder.
    const unsigned __int128 remainder = (numerator % divisor) << 1;
    significand = significand << 1 | (remainder >= divisor);
    r.sticky = u.sticky || (remainder >= divisor ? remainder - divisor : remainder) != 0;
    r.exponent -= 1;
  }
  r.significand = significand;
  return r;
}

} // namespace c10::formats
