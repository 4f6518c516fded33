#include <ATen/native/formats/stock/StockCodes.h>

#include <ATen/TensorOperators.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <ATen/native/formats/stock/StockTables.h>
#include <ATen/native/formats/stock/StockWide.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/take.h>
#include <ATen/ops/where.h>
#include <c10/formats/codec/ExactCodec.h>

#include <cmath>
#include <vector>

namespace at::formats {
namespace {

using at::Tensor;
using c10::ScalarType;
using c10::formats::Format;
using c10::formats::Kind;
using c10::formats::Subnormals;

Tensor longs(const Format& f, const Tensor& codes) {
  return codes.to(ScalarType::Long).bitwise_and(static_cast<int64_t>(f.code_mask()));
}

Tensor is_negative(const Format& f, const Tensor& codes) {
  return codes.bitwise_and(static_cast<int64_t>(f.is_signed ? f.sign_code() : 0)).ne(0);
}

// random: from 0 to 2^32 - 1; chooses one of `count` bits.
Tensor one_bit(const Tensor& random, const Tensor& count) {
  return at::full_like(random, 1).__lshift__((random * count).__rshift__(32));
}

Tensor flip(const Format& f, const Tensor& code, const Tensor& random) {
  const auto constant = [&](int64_t x) { return at::scalar_tensor(x, code.options()); };
  if (f.is_table()) return code ^ one_bit(random, constant(f.bits));
  const bool is_float = f.kind == Kind::Float;
  const auto sign = static_cast<int64_t>(f.sign_code());
  const auto mask = static_cast<int64_t>(f.code_mask());
  const auto most = static_cast<int64_t>(f.max_code());
  const Tensor negative = is_negative(f, code);
  const auto negate = [&](const Tensor& x) {
    return is_float ? x.bitwise_xor(sign) : x.neg().bitwise_and(mask);
  };
  Tensor magnitude = at::where(negative, negate(code), code);
  Tensor length;
  if (f.is_tapered()) length = significand_lengths(f, magnitude);
  else if (f.is_fixed()) length = constant(f.significand_bits());
  else length = magnitude.le(most) * constant(f.man_bits);
  Tensor stays = length.eq(0);
  if (f.is_tapered() || f.unsigned_zero()) stays = stays | code.eq(sign); // NaN
  magnitude = magnitude ^ one_bit(random, length);
  if (f.is_fixed()) {
    const auto lowest = static_cast<int64_t>(f.lowest_magnitude());
    magnitude = magnitude.minimum(at::where(negative, constant(lowest), constant(most)));
  }
  Tensor result = at::where(negative, negate(magnitude), magnitude);
  if (f.unsigned_zero()) result = result * magnitude.ne(0);
  return at::where(stays, code, result);
}

// Codes are in the order of integers.
Tensor next_integers(const Format& f, const Tensor& code, const Tensor& up) {
  const Tensor number = code - is_negative(f, code) * static_cast<int64_t>(f.sign_code()) * 2;
  const auto most = static_cast<int64_t>(f.max_code());
  const int64_t least = f.is_tapered() ? -most : -static_cast<int64_t>(f.lowest_magnitude());
  const Tensor next = (number + up.to(ScalarType::Long).mul(2).sub(1)).clamp(least, most);
  return next.bitwise_and(static_cast<int64_t>(f.code_mask()));
}

// Sign and magnitude.
Tensor next_floats(const Format& f, const Tensor& code, const Tensor& up) {
  const auto sign_code = static_cast<int64_t>(f.sign_code());
  const Tensor sign = code.bitwise_and(sign_code), magnitude = code.bitwise_and(~sign_code);
  const bool ends_in_infinity = f.has_infinity() && f.overflow == c10::formats::Overflow::Ieee;
  const int64_t largest = static_cast<int64_t>(f.max_code()) + ends_in_infinity;
  const int64_t smallest =
      f.subnormals == Subnormals::Flush ? int64_t{1} << f.man_bits : int64_t{1};
  const Tensor outwards = up.eq(sign.eq(0));
  const Tensor outer = magnitude.add(1).clamp_max(largest);
  const Tensor inner = magnitude.sub(1) * magnitude.gt(smallest);
  Tensor result = sign | at::where(outwards, outer, inner);
  if (f.unsigned_zero()) result = result * (outwards | inner.ne(0));
  const Tensor from_zero =
      up.logical_not().to(ScalarType::Long).mul(sign_code).bitwise_or(smallest);
  return at::where(magnitude.lt(smallest), from_zero, result);
}

Tensor table_neighbours(const Format& f, const Tensor& code, const Tensor& up) {
  const auto neighbours = [&](bool upwards) {
    std::vector<int64_t> next(size_t{1} << f.bits);
    for (size_t i = 0; i < next.size(); ++i)
      next[i] = static_cast<int64_t>(c10::formats::next_code_of_table(f, i, upwards));
    return at::take(on_device(next, ScalarType::Long, code.device()), code);
  };
  return at::where(up, neighbours(true), neighbours(false));
}

} // namespace

Tensor flip_by_stock(const Format& f, const Tensor& codes, double probability,
                     const c10::formats::RandomWords& seed) {
  const StockWords words(seed.seed.number, codes.numel(), codes.device());
  const Tensor code = longs(f, codes.as_strided({codes.numel()}, {1}));
  constexpr int64_t low = 0xffff'ffff;
  const auto limit = static_cast<int64_t>(std::ldexp(probability, 32));
  const Tensor chosen = words.all().__rshift__(32).bitwise_and(low).lt(limit);
  const Tensor flipped = at::where(chosen, flip(f, code, words.all().bitwise_and(low)), code);
  return flipped.to(codes.scalar_type()).as_strided(codes.sizes(), codes.strides());
}

Tensor next_codes_by_stock(const Format& f, const Tensor& codes, const Tensor& from,
                           const Tensor& towards) {
  const Tensor code = longs(f, codes), up = towards.gt(from);
  Tensor next;
  if (f.is_table()) next = table_neighbours(f, code, up);
  else next = f.kind == Kind::Float ? next_floats(f, code, up) : next_integers(f, code, up);
  const auto constant = [&](uint64_t x) {
    return at::scalar_tensor(static_cast<int64_t>(x), code.options());
  };
  const auto zero = [&](double x) { return constant(encode(f, c10::formats::unpack(x))); };
  const Tensor same =
      at::where(from.eq(0), at::where(towards.signbit(), zero(-0.0), zero(0.0)), code);
  next = at::where(from.eq(towards), same, next);
  return at::where(from.isnan() | towards.isnan(), constant(f.nan_code()), next);
}

} // namespace at::formats
