// Branch-free encoders of the mode `stochastic`. A result says whether it is undecided: only then
// must ExactCodec.h's answer be taken. All others agree with it bit for bit.
#pragma once
#include <c10/formats/codec/FastEncode.h>

namespace c10::formats {

template <typename T>
struct MaybeCode {
  typename Machine<T>::Bits code;
  typename Machine<T>::Bits undecided; // not 0: use the generic codec
};

// The carry of a + b, as 0 or 1. A comparison would do, but some vector units lack it for unsigned
// numbers.
template <typename Bits>
TD_INLINE Bits carry_of(Bits a, Bits b) {
  return ((a & b) | ((a | b) & ~(a + b))) >> (sizeof(Bits) * 8 - 1);
}

// Floats with subnormals. `random` is as wide as T. For float it is the high half of the element's
// word. The result is then undecided only if the low half is added to bits of the fraction below
// 2^-32.
template <typename T>
struct StochasticFloatEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Signed min_exponent, beyond_exponent;
  Bits max_code, overflow_code, nan_code, unsigned_zero;
  int man_bits, sign_bit;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit StochasticFloatEncoder(const Format& f)
      : min_exponent(f.min_exponent()),
        beyond_exponent(f.max_exponent() + 1),
        max_code(static_cast<Bits>(f.max_code())),
        overflow_code(static_cast<Bits>(f.overflow_code())),
        nan_code(static_cast<Bits>(f.nan_code())),
        unsigned_zero(Bits{0} - f.unsigned_zero()),
        man_bits(f.man_bits),
        sign_bit(f.bits - 1) {}

  TD_INLINE static bool serves(const Format& f) {
    return f.kind == Kind::Float && f.subnormals == Subnormals::Gradual;
  }

  TD_INLINE MaybeCode<T> operator()(T x, Bits random) const {
    constexpr int W = M::width, spare = W - 1 - M::fraction; // zeros above the significand
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Bits significand = significand_of<T>(a);
    Signed e = exponent_of<T>(a);
    e = e < beyond_exponent ? e : beyond_exponent;
    const Signed up = e > min_exponent ? e : min_exponent;
    const Signed shift = M::fraction - man_bits + (up - e);
    const Bits kept = significand >> (shift < W - 1 ? shift : W - 1);
    // The discarded part, in units of 2^-W of the last place kept.
    const Signed left = M::fraction + 1 - shift > 0 ? M::fraction + 1 - shift : 0;
    const Signed beyond = shift - M::fraction - 1 > 0 ? shift - M::fraction - 1 : 0;
    const Signed right = beyond < W - 1 ? beyond : W - 1;
    const Bits top = significand << spare;
    const Bits fraction =
        ((top << left) >> right) & mask_less<T>(static_cast<Bits>(beyond), Bits{W});
    Bits code = (Bits(up - min_exponent) << man_bits) + kept + carry_of(fraction, random);
    code = select(mask_less<T>(max_code, code) | mask_less<T>(infinity_bits<T>() - 1, a),
                  overflow_code, code);
    code = select(mask_less<T>(infinity_bits<T>(), a), nan_code, code);
    const Bits sign = (u >> (W - 1)) & (~unsigned_zero | mask_nonzero<T>(code)) & 1;
    Bits undecided = 0;
    if constexpr (W == 32)
      undecided = mask_less<T>(Bits{spare}, static_cast<Bits>(right)) &
          ~mask_nonzero<T>(~(fraction + random)) & mask_nonzero<T>(a);
    return {code | (sign << sign_bit), undecided};
  }
};

// Most of those formats, from float32, in half the instructions.
// Normal results: as many random bits as are cut off are added to the fraction, in place; the carry
// rounds. Subnormal results: the same in fixed point, with `spare` digits behind the format's last
// place.
struct StochasticIeeeEncoder {
  using Bits = uint32_t;
  using Signed = int32_t;
  using M = Machine<float>;
  Bits smallest, largest_subnormal, rebias, overflow_code, nan_code, sign_code, spare_mask;
  float scale;
  int cut, spare, sign_shift;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit StochasticIeeeEncoder(const Format& f)
      : smallest(same_binade<float>(f) ? 0 : bits_as<Bits>(power_of_two<float>(f.min_exponent()))),
        largest_subnormal(same_binade<float>(f) ? 0 : smallest - 1),
        rebias(static_cast<Bits>(M::bias - f.bias) << M::fraction),
        overflow_code(static_cast<Bits>(f.overflow_code())),
        nan_code(static_cast<Bits>(f.nan_code())),
        sign_code(static_cast<Bits>(f.sign_code())),
        spare_mask((Bits{1} << (31 - f.man_bits)) - 1),
        scale(same_binade<float>(f) ? 1 : power_of_two<float>(31 - f.min_exponent())),
        cut(M::fraction - f.man_bits),
        spare(31 - f.man_bits),
        sign_shift(M::width - f.bits) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    if (f.kind != Kind::Float || f.subnormals != Subnormals::Gradual || f.unsigned_zero() ||
        f.bits > 16)
      return false;
    if (f.overflow_code() > f.max_code() + 1) return false;
    // Machine numbers that a processor may flush to 0 are decided by the bits behind their leading
    // zeros; see `undecided`.
    return f.bias <= M::bias &&
        (same_binade<float>(f) ||
         (f.min_exponent() >= 31 - M::bias && f.min_exponent() <= M::bias));
  }

  TD_INLINE MaybeCode<float> operator()(float x, Bits random) const {
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Bits held = a < largest_subnormal ? a : largest_subnormal;
    const Bits fixed = static_cast<Bits>(static_cast<Signed>(bits_as<float>(held) * scale)) +
        (random >> (32 - spare));
    const Bits normal = (a + (random >> (32 - cut)) - rebias) >> cut;
    const Bits is_subnormal = mask_less<float>(a, smallest);
    Bits code = select(is_subnormal, fixed >> spare, normal);
    code = code < overflow_code ? code : overflow_code;
    code = select(mask_less<float>(infinity_bits<float>(), a), nan_code, code);
    // Digits behind the spare ones are added to the other half of the random word. They matter if a
    // carry would run through all spare digits.
    const Bits undecided =
        is_subnormal & ~mask_nonzero<float>(~fixed & spare_mask) & mask_nonzero<float>(a);
    return {code | ((u >> sign_shift) & sign_code), undecided};
  }
};

// Posits: random digits are added to those behind the last one kept, and the carry rounds.
// Undecided if exponent bits are cut off (the probability is then not the string's fraction), or if
// bits that the regime pushed out of the lane could matter.
template <typename T>
struct StochasticPositEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Signed limit; // maxpos as exponent.fraction
  Bits linear;  // exponent.fraction from -linear to linear - 1 keeps all exponent bits
  Bits behind;  // the digits behind the last one kept
  Bits nan_code, code_mask, largest;
  int bits, es;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit StochasticPositEncoder(const Format& f)
      : limit(static_cast<Signed>(Bits(f.max_exponent()) << M::fraction)),
        linear(linear_exponent(f) < 0 ? 0 : static_cast<Bits>(linear_exponent(f)) << M::fraction),
        behind((Bits{1} << (M::width + 1 - f.bits)) - 1),
        nan_code(static_cast<Bits>(f.nan_code())),
        code_mask(static_cast<Bits>(f.code_mask())),
        largest(largest_number<T>(f)),
        bits(f.bits),
        es(f.es) {}

  TD_INLINE static int linear_exponent(const Format& f) {
    return (f.bits - 2 - f.es) * (1 << f.es);
  }
  TD_INLINE static bool serves(const Format& f) {
    return f.is_posit() && f.underflow == Underflow::Minpos;
  }

  TD_INLINE MaybeCode<T> operator()(T x, Bits random) const {
    constexpr int W = M::width;
    const int low_bits = M::fraction + es;
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Signed b = exponent_fraction<T>(a);
    const Signed held = held_within(b, limit);
    const Bits below_one = static_cast<Bits>(held >> (W - 1));
    const Bits k = static_cast<Bits>(held >> low_bits);
    const Bits tail = static_cast<Bits>(held) & ((Bits{1} << low_bits) - 1);
    const Bits word =
        ((Bits{2} << (W - 2)) ^ (below_one & (Bits{3} << (W - 2)))) | (tail << (W - 2 - low_bits));
    const Bits string = static_cast<Bits>(static_cast<Signed>(word) >> (k ^ below_one));
    const Bits sum = string + (random >> (bits - 1));
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (W - 1));
    Bits code = sum >> (W + 1 - bits);
    code = ((code ^ sign) - sign) & mask_nonzero<T>(a);
    code = select(mask_less<T>(largest, a), nan_code, code);
    // Zero is always decided, because it is common. Bits that the regime pushed out of the lane
    // matter if a carry would run through all remaining ones.
    const Bits inside = mask_less<T>(static_cast<Bits>(b ^ (b >> (W - 1))), linear) &
        mask_nonzero<T>(~sum & behind);
    return {code & code_mask, ~inside & mask_nonzero<T>(a)};
  }
};

// The second half of UpDown: a code from nearest rounding moves one away from 0 or back. `up` is a
// mask. For floats with subnormals whose code shows overflow (such results do not move), and posits
// that do not underflow.
template <typename Bits>
struct CodeMover {
  Bits sign_code, code_mask, max_code, overflow_code;
  Bits posit, unsigned_zero; // masks

  TD_HOST_DEVICE __attribute__((always_inline)) explicit CodeMover(const Format& f)
      : sign_code(static_cast<Bits>(f.sign_code())),
        code_mask(static_cast<Bits>(f.code_mask())),
        max_code(static_cast<Bits>(f.max_code())),
        overflow_code(static_cast<Bits>(f.is_posit() ? f.max_code() : f.overflow_code())),
        posit(Bits{0} - Bits{f.is_posit()}),
        unsigned_zero(Bits{0} - Bits{f.unsigned_zero()}) {}

  TD_INLINE static bool serves(const Format& f) {
    // A saturated infinity does not move.
    if (f.is_posit()) return f.underflow == Underflow::Minpos && f.infinity == Infinity::Nan;
    return f.kind == Kind::Float && f.subnormals == Subnormals::Gradual &&
        f.overflow_code() != f.max_code();
  }

  TD_INLINE static Bits less(Bits a, Bits b) { return Bits{0} - Bits{a < b}; }

  TD_INLINE Bits operator()(Bits code, Bits up) const {
    const Bits sign = Bits{0} - Bits{(code & sign_code) != 0};
    const Bits m = select(posit, ((code ^ sign) - sign) & code_mask, code & ~sign_code & code_mask);
    // NaN, NaR and infinities are above the largest code, or (NaN at the code of minus zero) have
    // magnitude 0.
    const Bits moves = less(Bits{0}, m) & ~less(max_code, m);
    Bits next = m + select(up, Bits{1}, ~Bits{0});
    next = select(posit & less(next, Bits{1}), Bits{1}, next);
    next = select(less(max_code, next), overflow_code, next);
    const Bits plain = ((code & sign_code) | next) & (~unsigned_zero | less(Bits{0}, next));
    return select(moves, select(posit, ((next ^ sign) - sign) & code_mask, plain), code);
  }
};

} // namespace c10::formats
