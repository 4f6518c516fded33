// Sums of blocks of products, as a tensor core makes them: exact products are cut at one place,
// added, and rounded into a register.
//
// Sources: Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores", ACM TACO (2026); Xie et
// al., "MMA-Sim", arXiv 2511.10909.
#pragma once
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/sums/BlockSum.h>
#include <c10/formats/sums/SpecialTerms.h>

#include <algorithm>

namespace c10::formats {

// mantissa * 2^(exponent - 52), with the exponent that hardware sees: floats' subnormals have the
// smallest one.
struct BlockTerm {
  int64_t mantissa{0};
  int exponent{0};
};

TD_HOST_DEVICE inline BlockTerm block_term(double x, int low_exponent) {
  const uint64_t bits = double_bits(x);
  const int field = int(bits >> 52) & 0x7ff;
  int64_t mantissa =
      static_cast<int64_t>((bits & ((uint64_t{1} << 52) - 1)) | (field ? uint64_t{1} << 52 : 0));
  if (mantissa == 0) return {};
  int exponent = (field ? field : 1) - 1023;
  if (exponent < low_exponent) { // exact: a subnormal number lacks these digits, so they are zeros
    mantissa >>= low_exponent - exponent;
    exponent = low_exponent;
  }
  return {bits >> 63 ? -mantissa : mantissa, exponent};
}

// A sum of at most 64 bits in float64, rounded to odd, so that counts stay right. Exponents above
// float64's become its largest.
TD_HOST_DEVICE inline double to_odd_double(Unpacked u) {
  u.significand = ((u.significand >> 11) | ((u.significand & 0x7ff) != 0 || u.sticky)) << 11;
  u.exponent = std::min(u.exponent, 1023);
  return to_double(u);
}

// An observer of registers' roundings that does nothing.
struct Unseen {
  TD_HOST_DEVICE void operator()(const Unpacked&, double) const {}
};

// One sum, block after block: the generic path, for every operand, register and mode.
template <typename Seen = Unseen>
class BlockRegister {
 public:
  TD_HOST_DEVICE BlockRegister(const BlockAdder& adder, uint64_t seed, const Seen& seen = {})
      : adder_(adder),
        seed_(seed),
        seen_(seen) {}

  // first, all: stochastic modes number their words by the sum's index and the number of sums.
  // Without a start there is no rounding to count.
  TD_HOST_DEVICE void begin(double start, uint64_t first, uint64_t all, bool counts = true) {
    next_word_ = first;
    all_ = all;
    value_ = put(unpack(start), counts);
  }

  // Adds n more terms, pairs.x(i) * pairs.y(i), to the register. `special` is the sum of the
  // non-finite ones; 0 if all are finite.
  template <typename Pairs>
  TD_HOST_DEVICE void add(const Pairs& pairs, int64_t n, double special) {
    if (adder_.sum.product_limit) special += infinite_products(pairs, n);
    if (special != 0 || !finite(value_)) {
      if (!finite(value_)) special += value_;
      // NaN without a sign.
      value_ = put(unpack(special == special ? special : double_from_bits(uint64_t{0xfff} << 51)));
      return;
    }
    value_ = put(adder_.sum.late ? late_sum(pairs, n) : aligned_sum(pairs, n));
    if (!adder_.sum.late) value_ += 0.0; // a sum in two's complement has no negative zero
  }

  TD_HOST_DEVICE double value() const { return value_; }
  // Copies the state of another register of the same adder, including its words.
  TD_HOST_DEVICE void assign(const BlockRegister& other) {
    value_ = other.value_;
    next_word_ = other.next_word_;
    all_ = other.all_;
  }

 private:
  static constexpr int kNoExponent = -(1 << 20);
  static constexpr int kMaxInterleave = 64; // as in policies/accumulation_options.py

  struct Product {
    unsigned __int128 magnitude; // times 2^(exponent - 104)
    int exponent;
    bool negative;
  };
  TD_HOST_DEVICE static Product product(const BlockTerm& x, const BlockTerm& y) {
    return {size_of(x.mantissa) * size_of(y.mantissa), x.exponent + y.exponent,
            (x.mantissa < 0) != (y.mantissa < 0)};
  }

  // magnitude * 2^-shift as an integer, rounded in a mode.
  TD_HOST_DEVICE static int64_t cut_to(unsigned __int128 magnitude, int shift, bool negative,
                                       Rounding mode) {
    if (shift < 0) return static_cast<int64_t>(magnitude << -shift) * (negative ? -1 : 1);
    if (mode == Rounding::TowardZero) { // the most common mode, without reading the discarded part
      const auto kept = shift > 127 ? 0 : static_cast<int64_t>(magnitude >> shift);
      return negative ? -kept : kept;
    }
    const Cut c = cut(magnitude, shift, false);
    const auto kept = static_cast<int64_t>(c.kept + rounds_up(mode, negative, c, 0));
    return negative ? -kept : kept;
  }

  // Adds products at places from, from + step, ... in units of 2^(exponent - bits). All are aligned
  // to the largest of their exponents and at_least.
  struct Aligned {
    int64_t sum{0};
    int exponent{kNoExponent};
  };
  template <typename Pairs>
  TD_HOST_DEVICE Aligned align(const Pairs& pairs, int64_t n, int64_t from, int64_t step,
                               int at_least) const {
    Aligned a;
    a.exponent = at_least;
    for (int64_t i = from; i < n; i += step) {
      const BlockTerm x = pairs.x(i), y = pairs.y(i);
      if (x.mantissa && y.mantissa) a.exponent = std::max(a.exponent, x.exponent + y.exponent);
    }
    for (int64_t i = from; i < n; i += step) {
      const Product p = product(pairs.x(i), pairs.y(i));
      if (p.magnitude)
        a.sum += cut_to(p.magnitude, 104 - adder_.bits + (a.exponent - p.exponent), p.negative,
                        adder_.sum.align);
    }
    return a;
  }

  TD_HOST_DEVICE static unsigned __int128 size_of(int64_t x) {
    return static_cast<unsigned __int128>(x < 0 ? 0 - static_cast<uint64_t>(x)
                                                : static_cast<uint64_t>(x));
  }
  TD_HOST_DEVICE static Unpacked unpacked(int64_t sum, int exponent) {
    return unpack_integer(static_cast<uint64_t>(size_of(sum)), sum < 0, exponent);
  }

  template <typename Pairs>
  TD_HOST_DEVICE Unpacked aligned_sum(const Pairs& pairs, int64_t n) const {
    const BlockTerm held = block_term(value_, adder_.reg.min_exponent());
    int at_least = held.mantissa ? held.exponent : kNoExponent;
    if (adder_.sum.min_exponent) at_least = std::max(at_least, *adder_.sum.min_exponent);
    if (adder_.sum.interleave == 1) {
      Aligned a = align(pairs, n, 0, 1, at_least);
      if (held.mantissa) a.sum += kept_register(held, a.exponent);
      return unpacked(a.sum, a.exponent - adder_.bits);
    }
    const Aligned a = groups(pairs, n);
    const int exponent = std::max(a.exponent, at_least);
    int64_t sum = cut_to(size_of(a.sum), exponent - a.exponent, a.sum < 0, Rounding::Down);
    if (held.mantissa) sum += kept_register(held, exponent);
    return unpacked(sum, exponent - adder_.bits);
  }

  TD_HOST_DEVICE int64_t kept_register(const BlockTerm& held, int exponent) const {
    const Rounding mode = adder_.sum.late ? Rounding::Down : adder_.sum.align;
    return cut_to(size_of(held.mantissa), 52 - adder_.bits + (exponent - held.exponent),
                  held.mantissa < 0, mode);
  }

  // The sum of the groups, each aligned within itself, then cut downwards at the largest of their
  // exponents.
  template <typename Pairs>
  TD_HOST_DEVICE Aligned groups(const Pairs& pairs, int64_t n) const {
    Aligned parts[kMaxInterleave], all;
    const int step = adder_.sum.interleave;
    for (int g = 0; g < step; ++g) {
      parts[g] = align(pairs, n, g, step, kNoExponent);
      all.exponent = std::max(all.exponent, parts[g].exponent);
    }
    for (int g = 0; g < step; ++g) {
      all.sum += cut_to(size_of(parts[g].sum), all.exponent - parts[g].exponent, parts[g].sum < 0,
                        Rounding::Down);
    }
    return all;
  }

  // Adds the register to the finished sum of products; both are cut downwards. A register far below
  // interleaved groups is left out.
  template <typename Pairs>
  TD_HOST_DEVICE Unpacked late_sum(const Pairs& pairs, int64_t n) const {
    const Aligned a = groups(pairs, n);
    const BlockTerm held = block_term(value_, adder_.reg.min_exponent());
    const int least = adder_.sum.min_exponent ? *adder_.sum.min_exponent : kNoExponent;
    const int exponent = std::max({a.exponent, held.mantissa ? held.exponent : kNoExponent, least});
    const int wide = adder_.late_bits(), below = wide - adder_.bits;
    const int shift = exponent - a.exponent - below; // of the sum, to 2^(exponent - wide)
    int64_t sum = a.sum == 0 ? 0 : cut_to(size_of(a.sum), shift, a.sum < 0, Rounding::Down);
    const bool left_out = adder_.sum.interleave > 1 && held.exponent < exponent - (adder_.bits + 1);
    if (held.mantissa && !left_out) sum += kept_register(held, exponent) * (int64_t{1} << below);
    // Keeps a number of bits behind the leading digit of the sum, or of the smallest normal number.
    const int leading = std::max(
        63 - count_leading_zeros(static_cast<uint64_t>(size_of(sum)) | 1) + exponent - wide,
        adder_.reg.min_exponent());
    const int beyond = std::max(0, leading - exponent);
    return unpacked(cut_to(size_of(sum), beyond, sum < 0, Rounding::Down),
                    exponent - wide + beyond);
  }

  // The sum of the infinities that products beyond the register's range become; 0 if there are
  // none.
  template <typename Pairs>
  TD_HOST_DEVICE double infinite_products(const Pairs& pairs, int64_t n) const {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Unpacked p = unpacked_product(pairs.x(i), pairs.y(i));
      if (p.cls == Class::Finite && p.exponent > adder_.reg.max_exponent())
        sum += p.negative ? -infinity() : infinity();
    }
    return sum;
  }

  TD_HOST_DEVICE static Unpacked unpacked_product(const BlockTerm& x, const BlockTerm& y) {
    const Product p = product(x, y);
    const auto high = static_cast<uint64_t>(p.magnitude >> 64);
    const int shift = high ? 64 - count_leading_zeros(high) : 0;
    return unpack_integer(static_cast<uint64_t>(p.magnitude >> shift), p.negative,
                          p.exponent - 104 + shift);
  }

  // Rounds into the register. A sum beyond the largest exponent overflows in every mode, as in
  // hardware that cuts.
  TD_HOST_DEVICE double put(Unpacked u, bool counts = true) {
    const Unpacked exact = u;
    if (u.cls == Class::Finite && u.exponent > adder_.reg.max_exponent()) u.cls = Class::Infinite;
    const bool random = is_stochastic(adder_.reg.rounding);
    const uint64_t code = encode(adder_.reg, u, random ? random_word(seed_, next_word_) : 0);
    next_word_ += all_;
    const double rounded = to_double(decode(adder_.reg, code));
    if (counts) seen_(exact, rounded);
    return rounded;
  }

  TD_HOST_DEVICE static double infinity() { return double_from_bits(uint64_t{0x7ff} << 52); }

  const BlockAdder& adder_;
  uint64_t seed_, next_word_{0}, all_{0};
  Seen seen_;
  double value_{0};
};

} // namespace c10::formats
