#include <ATen/native/formats/stock/StockRounding.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/FastEncode.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10::formats::Format;
using c10::formats::Machine;
using c10::formats::Rounding;

// Rounds by a format's limits, held as bits of T, with the tensors of one call.
template <typename T>
class FloatRounding {
 public:
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;

  FloatRounding(const Format& f, c10::Device device)
      : f_(f),
        moves_(f.rounding == Rounding::UpDown),
        device_(device),
        flush_(f.subnormals == c10::formats::Subnormals::Flush),
        cut_(M::fraction - f.man_bits),
        first_(f.min_exponent() + M::bias),
        edge_(flush_ ? f.min_exponent() : f.lsb_exponent()) {
    if (moves_) f_.rounding = Rounding::NearestEven; // its first half
  }

  at::Tensor round(const at::Tensor& values, const StockWords& words) {
    if (moves_) return decode_codes(encode(values, words));
    const at::Tensor u = values.view(kInts);
    const at::Tensor a = u.bitwise_and(kMost);
    const auto bits = [&](uint64_t code) {
      return static_cast<int64_t>(
          c10::formats::bits_as<Signed>(static_cast<T>(to_double(decode(f_, code)))));
    };
    const at::Tensor m = end(magnitude(a, u, words), a, u, bits(f_.max_code()),
                             bits(f_.overflow_code()), bits(f_.nan_code()) & kMost);
    at::Tensor sign = u.bitwise_and(int64_t{std::numeric_limits<Signed>::min()});
    if (f_.unsigned_zero()) sign.mul_(m.ne(0).logical_and_(m.le(kInfinity)));
    return sign.bitwise_or_(m).view(values.scalar_type());
  }

  at::Tensor encode(const at::Tensor& values, const StockWords& words) {
    const at::Tensor u = values.view(kInts);
    const at::Tensor a = u.bitwise_and(kMost);
    const at::Tensor m = magnitude(a, u, words);
    // A code is the exponent, counted from the smallest, before the digits.
    at::Tensor code = m.__rshift__(cut_).sub(int64_t{first_ - 1} << f_.man_bits);
    if (flush_ || f_.man_bits == 0) {
      code = code * m.ne(0);
    } else if (first_ > 1) { // in T such subnormals are normal numbers
      const at::Tensor field = m.__rshift__(M::fraction);
      const at::Tensor shift = field.neg().add(cut_ + first_).clamp(0, M::fraction + 1);
      const at::Tensor digits = m.bitwise_and(kDigits).bitwise_or(kOne);
      code = at::where(field.lt(first_), digits.__rshift__(shift), code);
    }
    if (moves_) code = move_codes(code, words);
    code = end(code, a, u, f_.max_code(), f_.overflow_code(), f_.nan_code());
    const int64_t sign_code = f_.bits == M::width ? int64_t{std::numeric_limits<Signed>::min()}
                                                  : int64_t{1} << (f_.bits - 1);
    at::Tensor sign = mask_of_sign(u).bitwise_and(sign_code);
    if (f_.unsigned_zero()) sign = sign * code.ne(0);
    return code | sign;
  }

  at::Tensor decode_codes(const at::Tensor& codes) const {
    const at::Tensor c = codes.to(kInts);
    const at::Tensor m = c.bitwise_and(static_cast<int64_t>(f_.sign_code() - 1));
    at::Tensor bits = m.__lshift__(cut_).add(int64_t{first_ - 1} << M::fraction);
    if (flush_ || first_ > 1) {
      const at::Tensor small = m.lt(int64_t{1} << f_.man_bits);
      const double unit = std::ldexp(1.0, f_.lsb_exponent());
      bits = at::where(small, flush_ ? at::zeros_like(m) : (m.to(kType) * unit).view(kInts), bits);
    }
    const auto special = static_cast<int64_t>(f_.max_code());
    const at::Tensor nan = number(nan_bits());
    bits = at::where(m.gt(special), nan, bits);
    if (f_.has_infinity()) bits = at::where(m.eq(special + 1), number(kInfinity), bits);
    at::Tensor negative = c.__rshift__(f_.bits - 1).bitwise_and(1);
    if (f_.unsigned_zero()) {
      bits = at::where(negative.ne(0) & m.eq(0), nan, bits);
      negative = negative * m.ne(0);
    }
    return (bits | negative.__lshift__(M::width - 1)).view(kType);
  }

 private:
  static constexpr ScalarType kInts = sizeof(T) == 4 ? ScalarType::Int : ScalarType::Long;
  static constexpr ScalarType kType = sizeof(T) == 4 ? ScalarType::Float : ScalarType::Double;
  static constexpr int64_t kMost = static_cast<Signed>(~Bits{0} >> 1);
  static constexpr int64_t kOne = int64_t{1} << M::fraction; // the digit before the fraction
  static constexpr int64_t kDigits = kOne - 1;
  static constexpr int64_t kInfinity = int64_t{2 * M::bias + 1} << M::fraction;

  Format f_;
  bool moves_; // the mode up_down
  c10::Device device_;
  bool flush_;
  int cut_;   // digits of T that a normal number of the format lacks
  int first_; // the exponent field, in T, of the smallest normal number
  int edge_;  // the exponent of the smallest positive number

  at::Tensor number(int64_t x) const {
    return at::scalar_tensor(int64_t{static_cast<Signed>(x)},
                             at::TensorOptions().dtype(kInts).device(device_));
  }
  static int64_t nan_bits() {
    return c10::formats::bits_as<Signed>(std::numeric_limits<T>::quiet_NaN());
  }
  // One code away from 0 or back. 0 stays, and codes beyond the largest, which are infinities.
  at::Tensor move_codes(const at::Tensor& code, const StockWords& words) const {
    const at::Tensor step = words.coins().to(kInts).mul(2).sub(1);
    const at::Tensor moved =
        code + step * (code.ne(0) & code.le(static_cast<int64_t>(f_.max_code())));
    return flush_ ? moved * moved.ge(int64_t{1} << f_.man_bits) : moved;
  }
  static at::Tensor mask_of_sign(const at::Tensor& u) { return u.__rshift__(M::width - 1); }
  // Chooses one of two numbers by the sign.
  at::Tensor by_sign(const at::Tensor& u, int64_t positive, int64_t negative) const {
    if (positive == negative) return number(positive);
    return mask_of_sign(u).bitwise_and_(positive ^ negative).bitwise_xor_(positive);
  }
  // Rounding to nearest even takes one sum: |x| + c, where c is 2^fraction units of the format's
  // last place at x, has no digit below that place. It needs c to be finite and the smallest unit
  // to be no subnormal number of T.
  bool adds_and_subtracts() const {
    return f_.rounding == Rounding::NearestEven && f_.man_bits > 0 && cut_ > 0 && !flush_ &&
        edge_field() > 0 && f_.max_exponent() + 1 + M::bias + cut_ <= 2 * M::bias;
  }

  at::Tensor add_and_subtract(const at::Tensor& a) const {
    const auto field = [](int64_t exponent) { return exponent << M::fraction; };
    const at::Tensor c = a.bitwise_and(kInfinity)
                             .clamp_(field(first_), field(f_.max_exponent() + 1 + M::bias))
                             .add_(field(cut_))
                             .view(kType);
    return a.view(kType).add(c).sub_(c).view(kInts);
  }

  // The digits below a place, a word's leading ones.
  static at::Tensor leading(const StockWords& words, const at::Tensor& shift,
                            const at::Tensor& ones) {
    if (M::width == 32) {
      const at::Tensor down = shift.neg().add_(32).clamp_max_(31);
      return words.high().__rshift__(down).to(kInts).bitwise_and_(ones);
    }
    const at::Tensor down = shift.clamp_min(1).neg_().add_(64);
    return words.all().__rshift__(down).bitwise_and_(ones);
  }

  // The exponent field of the smallest positive number; below 1 if that is subnormal in T.
  int edge_field() const { return edge_ + M::bias; }

  at::Tensor magnitude(const at::Tensor& a, const at::Tensor& u, const StockWords& words) const {
    if (adds_and_subtracts()) return add_and_subtract(a);
    // Below the smallest positive number there are 0 and it, and cutting digits would cut the
    // exponent.
    const bool has_edge = flush_ || edge_field() > 1;
    const bool uniform = flush_ || first_ == 1 || f_.man_bits == 0;
    const at::Tensor shift = uniform ? number(cut_)
                                     : a.__rshift__(M::fraction)
                                           .clamp_(std::max(edge_field(), 1), first_)
                                           .neg_()
                                           .add_(cut_ + first_);
    at::Tensor m = a;
    if (!uniform || cut_ > 0) {
      const at::Tensor ones = number(1).__lshift__(shift).sub_(1);
      m = addend(a, u, shift, ones, words).add(a).bitwise_and_(ones.bitwise_not());
    }
    if (!has_edge) return m;
    const int64_t edge = int64_t{edge_field()} << M::fraction;
    const at::Tensor gap = leaves_zero(a, u, words).to(kInts).mul_(edge);
    return at::where(a.lt(edge), gap, m);
  }

  // 1 where the last kept digit is odd. In the smallest positive number's binade that digit is the
  // leading one, which T does not store, and it is 1. Without a fraction it is 1 everywhere (IEEE
  // 754, 4.3.1), except in P3109's formats, where the code decides.
  at::Tensor odd(const at::Tensor& a, const at::Tensor& shift) const {
    if (f_.man_bits == 0 && !f_.unsigned_zero()) return at::ones_like(a);
    const int field = f_.man_bits == 0 ? first_ : edge_field();
    const bool turned = field > 1 && field % 2 == 0;
    at::Tensor digits = turned ? a.add(kOne) : a;
    digits = digits.__rshift__(shift).bitwise_and_(1);
    // Nothing is cut off: nothing is odd.
    return cut_ == 0 ? digits.mul_(shift.ne(0)) : digits;
  }

  at::Tensor addend(const at::Tensor& a, const at::Tensor& u, const at::Tensor& shift,
                    const at::Tensor& ones, const StockWords& words) const {
    const auto half = [&] { return ones.__rshift__(1); };
    switch (f_.rounding) {
      case Rounding::NearestEven: return odd(a, shift).add_(half());
      case Rounding::NearestZero: return half();
      case Rounding::NearestAway: return half().add_(ones.bitwise_and(1));
      case Rounding::NearestUp:
        return mask_of_sign(u).bitwise_not_().bitwise_and_(ones).bitwise_and_(1).add_(half());
      case Rounding::Up: return mask_of_sign(u).bitwise_not_().bitwise_and_(ones);
      case Rounding::Down: return mask_of_sign(u).bitwise_and_(ones);
      case Rounding::ToOdd: return odd(a, shift).sub_(1).bitwise_and_(ones);
      case Rounding::Stochastic: return leading(words, shift, ones);
      case Rounding::StochasticEqual: return ones * words.coins();
      default: return number(0);
    }
  }

  // Return which magnitudes below the smallest positive number round up to it.
  at::Tensor leaves_zero(const at::Tensor& a, const at::Tensor& u, const StockWords& words) const {
    if (f_.rounding == Rounding::StochasticEqual) return words.coins() & a.gt(0);
    if (f_.rounding != Rounding::Stochastic) {
      const auto beyond = [&](bool negative) {
        return static_cast<int64_t>(c10::formats::gap_threshold<T>(f_.rounding, negative, edge_));
      };
      return a.gt(by_sign(u, beyond(false), beyond(true)));
    }
    if (M::width == 32 && !words.in_graph()) { // a graph cannot branch by values
      // The fraction in units of 2^-32, cut, and the word's high half: low halves decide where
      // their sum is one below the carry, which happens once in 2^32 times.
      const int up = 32 - edge_;
      constexpr int64_t carry = int64_t{1} << 32;
      const at::Tensor sum = a.view(kType)
                                 .mul(std::ldexp(1.0, up / 2))
                                 .mul_(std::ldexp(1.0, up - up / 2))
                                 .clamp_max_(0x1p33)
                                 .to(ScalarType::Long)
                                 .add_(words.high().to(ScalarType::Long).bitwise_and_(carry - 1));
      if (!sum.eq(carry - 1).any().item<bool>()) return sum.ge(carry);
    }
    // The fraction of the smallest number in units of 2^-64; a word that it carries beyond them.
    const at::Tensor wide = a.to(ScalarType::Long);
    const at::Tensor field = wide.__rshift__(M::fraction);
    const at::Tensor digits =
        wide.bitwise_and(kDigits).add(field.gt(0).to(ScalarType::Long).mul(kOne));
    const at::Tensor shift = field.clamp_min(1).neg().add(edge_field() + M::fraction);
    const at::Tensor left = shift.neg().add(64);
    const at::Tensor cut = left.neg().clamp(0, 63), kept = digits.__rshift__(cut);
    at::Tensor fraction = at::where(left.ge(0), digits.__lshift__(left.clamp(0, 63)), kept);
    if (words.lowered().defined()) fraction = fraction | kept.__lshift__(cut).ne(digits);
    const at::Tensor least = fraction.bitwise_not(); // the word must be larger
    constexpr int64_t sign = std::numeric_limits<int64_t>::min(); // unsigned order
    return words.all().bitwise_xor(sign).gt(least.bitwise_xor(sign));
  }

  // Results for numbers that are too large, infinite, or NaN, as bits or as codes.
  at::Tensor end(at::Tensor m, const at::Tensor& a, const at::Tensor& u, uint64_t largest,
                 uint64_t infinity, uint64_t nan) const {
    const auto limit = [&](bool negative) {
      return static_cast<int64_t>(c10::formats::stops_at_max(f_.rounding, negative) ? largest
                                                                                    : infinity);
    };
    const int64_t positive = limit(false), negative = limit(true);
    m = at::where(m.gt(static_cast<int64_t>(largest)), by_sign(u, positive, negative), m);
    if (positive != negative || positive != static_cast<int64_t>(infinity))
      m = at::where(a.eq(kInfinity), number(static_cast<int64_t>(infinity)), m);
    return at::where(a.gt(kInfinity), number(static_cast<int64_t>(nan)), m);
  }
};

} // namespace

at::Tensor round_floats_by_stock(const Format& format, const at::Tensor& values,
                                 const StockWords& words) {
  const c10::Device device = values.device();
  return values.scalar_type() == ScalarType::Float
      ? FloatRounding<float>(format, device).round(values, words)
      : FloatRounding<double>(format, device).round(values, words);
}

at::Tensor encode_floats_by_stock(const Format& format, const at::Tensor& values,
                                  const StockWords& words) {
  const c10::Device device = values.device();
  return values.scalar_type() == ScalarType::Float
      ? FloatRounding<float>(format, device).encode(values, words)
      : FloatRounding<double>(format, device).encode(values, words);
}

at::Tensor decode_floats_by_stock(const Format& format, const at::Tensor& codes, ScalarType type) {
  const c10::Device device = codes.device();
  return type == ScalarType::Float ? FloatRounding<float>(format, device).decode_codes(codes)
                                   : FloatRounding<double>(format, device).decode_codes(codes);
}

} // namespace at::formats
