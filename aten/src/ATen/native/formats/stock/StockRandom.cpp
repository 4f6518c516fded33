#include <ATen/native/formats/stock/StockRandom.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/formats/codec/Philox.h>

#include <limits>
#include <utility>

namespace at::formats {
namespace {

using c10::formats::FewBits;
using c10::formats::Format;
using c10::formats::kPhiloxGroup;
using c10::formats::kPhiloxKeyStep0;
using c10::formats::kPhiloxKeyStep1;
using c10::formats::kPhiloxLanes;
using c10::formats::kPhiloxMultiplier0;
using c10::formats::kPhiloxMultiplier1;

constexpr int64_t kLow = 0xffff'ffff;

// A seed's low and high half, the keys of the first round.
std::pair<int64_t, int64_t> keys_of(uint64_t seed) {
  return {static_cast<int64_t>(seed & kLow), static_cast<int64_t>(seed >> 32)};
}
std::pair<at::Tensor, at::Tensor> keys_of(const at::Tensor& seed) {
  return {seed.bitwise_and(kLow), seed.__rshift__(32).bitwise_and(kLow)};
}

// Halves of n words: stream 0 the high ones, 1 the low ones. Numbers of 32 bits stand in int64,
// where a product's low 64 bits are right. x1, x3 and the keys have more bits above, which a mask
// takes from the next x0 and x2.
template <typename Seed>
at::Tensor compute_halves(const Seed& seed, const c10::SymInt& n, int64_t stream,
                          c10::Device device) {
  const auto ints = at::TensorOptions().dtype(at::kLong).device(device);
  const c10::SymInt groups = (n + (kPhiloxGroup - 1)) / kPhiloxGroup;
  at::Tensor x0 = at::arange(groups * kPhiloxLanes, ints), x1 = at::zeros_like(x0);
  at::Tensor x2 = at::full_like(x0, stream), x3 = x1;
  auto [k0, k1] = keys_of(seed);
  const auto mixed = [](const at::Tensor& product, const at::Tensor& x, const auto& key) {
    return product.__rshift__(32).bitwise_xor_(x).bitwise_xor_(key).bitwise_and_(kLow);
  };
  for (int round = 0; round < c10::formats::kPhiloxRounds; ++round) {
    const at::Tensor a = x0 * int64_t{kPhiloxMultiplier0}, b = x2 * int64_t{kPhiloxMultiplier1};
    x0 = mixed(b, x1, k0);
    x2 = mixed(a, x3, k1);
    x1 = b;
    x3 = a;
    k0 = k0 + int64_t{kPhiloxKeyStep0};
    k1 = k1 + int64_t{kPhiloxKeyStep1};
  }
  const auto lanes = [&](const at::Tensor& x) {
    return x.to(at::kInt).view_symint({groups, kPhiloxLanes});
  };
  return at::stack({lanes(x0), lanes(x1), lanes(x2), lanes(x3)}, 1).view(-1).narrow_symint(0, 0, n);
}

at::Tensor high_half(const at::Tensor& x) {
  return x.__rshift__(32).bitwise_and(kLow);
}
at::Tensor low_half(const at::Tensor& x) {
  return x.bitwise_and(kLow);
}

at::Tensor less_unsigned(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t sign = std::numeric_limits<int64_t>::min();
  return a.bitwise_xor(sign).lt(b.bitwise_xor(sign));
}

// shift: from 0 to 63.
at::Tensor shift_right_unsigned(const at::Tensor& x, const at::Tensor& shift) {
  const at::Tensor signs = at::full_like(x, -1).__lshift__(shift.neg().add(63)).mul(2);
  return x.__rshift__(shift).bitwise_and(signs.bitwise_not());
}

// |a - b| by its 64 leading bits: digits * 2^(field - 1023 - 63).
struct Distance {
  at::Tensor digits, field, inexact;

  Distance(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor s = a - b, a_part = s + b; // Knuth's TwoSum
    const at::Tensor error = ((a - a_part) - (b - (a_part - s))) * s.sign();
    const at::Tensor bits = s.abs().view(at::kLong);
    // Just below a power of two the leading bit is one lower.
    const at::Tensor below = bits.bitwise_and((int64_t{1} << 52) - 1).eq(0) & error.lt(0);
    field = bits.__rshift__(52).sub(below.to(at::kLong)).clamp(52, 2046);
    const at::Tensor scale = field.neg().add(52 + 2 * 1023).__lshift__(52).view(at::kDouble);
    const at::Tensor rest = error * scale * 0x1p11, whole = rest.floor();
    inexact = rest.ne(whole);
    digits = (s.abs() * scale).to(at::kLong).__lshift__(11) + whole.to(at::kLong);
  }
};

} // namespace

// The part's 64 digits, of which a fraction is cut off, times 2^64 are compared with the product of
// the whole's digits and 2^64 - word, which is made of halves. (For the word 0 there is no carry.)
at::Tensor draw_outer(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& outer,
                      const StockWords& words) {
  const Distance part(x, inner), whole(outer, inner);
  const at::Tensor below = (whole.field - part.field).clamp_min(0), above = below.neg().add(64);
  const at::Tensor high =
      at::where(above.gt(0), shift_right_unsigned(part.digits, below.clamp_max(63)),
                at::scalar_tensor(0, part.digits.options()));
  const at::Tensor low =
      at::where(above.ge(0), part.digits.__lshift__(above.clamp(0, 63)) * above.lt(64),
                shift_right_unsigned(part.digits, above.neg().clamp(0, 63)));
  const bool few = words.lowered().defined();
  const at::Tensor word = few ? words.all() + words.lowered() : words.all();
  const at::Tensor needed = word.neg();
  const at::Tensor a = high_half(needed), b = low_half(needed);
  const at::Tensor c = high_half(whole.digits), d = low_half(whole.digits);
  const at::Tensor last = b * d, first_cross = a * d + high_half(last);
  const at::Tensor cross = b * c + low_half(first_cross);
  const at::Tensor most = a * c + high_half(first_cross) + high_half(cross);
  const at::Tensor rest = cross.__lshift__(32) | low_half(last);
  at::Tensor tie = low.eq(rest);
  if (few) tie = tie & (words.lowered().eq(0) | part.inexact | whole.inexact);
  const at::Tensor more =
      less_unsigned(most, high) | (most.eq(high) & (less_unsigned(rest, low) | tie));
  return word.ne(0) & more;
}

void StockWords::use_few_bits(const Format& format) {
  few_bits_ = format.random_bits;
  how_ = format.few_bits;
}

at::Tensor StockWords::halves(int64_t stream) const {
  return in_graph() ? compute_halves(graph_seed_, n_, stream, device_)
                    : compute_halves(seed_, n_, stream, device_);
}

const at::Tensor& StockWords::high() const {
  if (!high_.defined()) high_ = few_bits_ == 0 ? halves(0) : all().__rshift__(32).to(at::kInt);
  return high_;
}

// With few bits, the fraction is cut to them, or rounded to them by adding half a unit to the word.
// In a tie that goes down the sum must exceed 2^64: if the word's last bit is 1.
const at::Tensor& StockWords::all() const {
  if (all_.defined()) return all_;
  const at::Tensor high = few_bits_ == 0 ? this->high() : halves(0);
  all_ = high.to(at::kLong).__lshift__(32).bitwise_or(halves(1).to(at::kLong).bitwise_and(kLow));
  if (few_bits_ == 0) return all_;
  const uint64_t unit = uint64_t{1} << (64 - few_bits_);
  all_ = all_.bitwise_and(static_cast<int64_t>(~(unit - 1)));
  if (how_ == FewBits::A) return all_;
  if (how_ == FewBits::C) lowered_ = all_.__rshift__(64 - few_bits_).bitwise_and(1);
  all_ = all_ + static_cast<int64_t>(unit / 2);
  if (how_ == FewBits::C) all_ = all_ - lowered_;
  return all_;
}

const at::Tensor& StockWords::lowered() const {
  all();
  return lowered_;
}

at::Tensor StockWords::coins() const {
  return high().lt(0);
}

} // namespace at::formats
