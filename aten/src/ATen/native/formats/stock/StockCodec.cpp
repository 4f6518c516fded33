#include <ATen/native/formats/stock/StockCodec.h>

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <ATen/native/formats/stock/StockRounding.h>
#include <ATen/native/formats/stock/StockTables.h>
#include <ATen/native/formats/stock/StockWide.h>
#include <ATen/ops/take.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10::formats::Format;
using c10::formats::Kind;
using c10::formats::Overflow;
using c10::formats::RandomWords;
using c10::formats::Rounding;

// Elements in memory order, in which random words are counted.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1});
}
at::Tensor shaped_as(const at::Tensor& flat, const at::Tensor& dense) {
  return flat.as_strided(dense.sizes(), dense.strides());
}

// Modes in which a word is a coin, with two possible results for each number.
bool tosses_coin(Rounding mode) {
  return mode == Rounding::StochasticEqual || mode == Rounding::UpDown;
}

bool by_bits(const Format& f) {
  return f.kind == Kind::Float && f.rounding != Rounding::UpDown;
}

// Fixed point in the mode `stochastic`: magnitudes are a float format's subnormals and first
// binade, whose codes count units of the last place.
bool by_bits_of_float(const Format& f) {
  return f.is_fixed() && f.rounding == Rounding::Stochastic && f.overflow == Overflow::Saturate &&
      f.significand_bits() <= 20;
}
Format float_of_fixed(const Format& f) {
  Format result = c10::formats::float_format(2, f.significand_bits());
  result.bias = static_cast<int16_t>(1 - f.int_bits);
  result.rounding = f.rounding;
  return result;
}

// Posits in the mode `stochastic`: the gap between two neighbours is at most 2^8 times the inner
// one.
bool draws_pieces(const Format& f) {
  return f.is_posit() && f.rounding == Rounding::Stochastic && f.es <= 3 && f.fits_float() &&
      f.underflow == c10::formats::Underflow::Minpos;
}

bool draws_few_bits(const Format& f) {
  return f.rounding == Rounding::Stochastic && f.random_bits != 0;
}

void expect_stock_way(const Format& f) {
  const bool by_integers = f.bits > 16 && has_wide_way(f);
  const bool by_tables = f.bits <= 16 && f.overflow != Overflow::Wrap &&
      (f.rounding != Rounding::Stochastic || draws_pieces(f));
  const bool few_bits = draws_few_bits(f);
  TORCH_CHECK_NOT_IMPLEMENTED(
      (by_bits(f) || by_bits_of_float(f) || by_integers || by_tables) && !few_bits,
      "expected a format and a mode that stock operators can round to, but got ",
      few_bits ? "few random bits"
               : "a random mode of such a format, a takum of more than 16 bits, or a format that "
                 "wraps",
      ". Move the tensor with .cpu() first.");
}

StockWords draw(const Format& f, const RandomWords& words, const at::Tensor& like) {
  if (!c10::formats::is_stochastic(f.rounding)) return {};
  return {words.seed.number, like.numel(), like.device()};
}

// One of the fields of each element's piece.
at::Tensor look_up(const Format& f, const at::Tensor& values, const StockWords& words,
                   at::Tensor RoundingSteps::* field) {
  if (draws_pieces(f)) {
    Format toward_zero = f;
    toward_zero.rounding = Rounding::TowardZero;
    const RoundingSteps steps =
        rounding_steps(toward_zero, 0, values.scalar_type(), values.device());
    return at::take(steps.*field, draw_pieces(f, steps, values, words));
  }
  const auto by = [&](uint64_t word) {
    const RoundingSteps steps = rounding_steps(f, word, values.scalar_type(), values.device());
    return at::take(steps.*field, find_pieces(steps, values));
  };
  return tosses_coin(f.rounding) ? at::where(words.coins(), by(~uint64_t{0}), by(0)) : by(0);
}

// int64 as float64. Numbers that do not fit become their odd neighbour: multiples of 2^10 have at
// most 53 digits.
at::Tensor doubles_of(const at::Tensor& integers) {
  const at::Tensor low = integers.bitwise_and((1 << 10) - 1);
  const at::Tensor odd = (integers ^ low) | low.ne(0).to(ScalarType::Long).__lshift__(10);
  constexpr int64_t limit = int64_t{1} << 53;
  return at::where(integers.lt(limit) & integers.gt(-limit), integers, odd).to(ScalarType::Double);
}

// Values in a type that has the format's.
at::Tensor widen(const Format& f, const at::Tensor& values) {
  return f.fits_float() ? values : values.to(ScalarType::Double);
}

// Codes by the bits of a float format, before the mask.
at::Tensor fixed_codes_by_bits(const Format& f, const at::Tensor& values, const StockWords& words) {
  const Format coded = float_of_fixed(f);
  const at::Tensor q = encode_floats_by_stock(coded, widen(coded, values), words);
  const auto sign = static_cast<int64_t>(coded.sign_code());
  return fixed_codes(f, q.bitwise_and(sign - 1), q.ge(sign), values);
}

} // namespace

at::Tensor round_by_stock(const Format& f, const at::Tensor& values, const RandomWords& seed) {
  expect_stock_way(f);
  const at::Tensor in = flat(values);
  const StockWords words = draw(f, seed, in);
  at::Tensor out;
  if (by_bits(f)) {
    out = round_floats_by_stock(f, widen(f, in), words).to(in.scalar_type());
  } else if (by_bits_of_float(f)) {
    const double unit = std::ldexp(1.0, -int{f.frac_bits});
    out = fixed_codes_by_bits(f, in, words).to(in.scalar_type()).mul(unit);
  } else if (f.bits > 16) {
    const at::Tensor codes = encode_wide_by_stock(f, in.to(ScalarType::Double), words);
    out = decode_wide_by_stock(f, codes).to(in.scalar_type());
  } else {
    out = look_up(f, in, words, &RoundingSteps::values);
  }
  return shaped_as(out, values);
}

bool fuses_in_graphs(const Format& f) {
  return by_bits(f) && !draws_few_bits(f);
}

// A graph takes no operation in place: functionalization makes others of them.
at::Tensor round_in_graph(const Format& f, const at::Tensor& values, const at::Tensor& seed) {
  namespace functional = at::functionalization::impl;
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor out;
  {
    // The tracer has excluded the key.
    const auto keys = c10::impl::tls_local_dispatch_key_set();
    const c10::impl::ForceDispatchKeyGuard guard(
        keys.included_.add(c10::DispatchKey::Functionalize),
        keys.excluded_.remove(c10::DispatchKey::Functionalize));
    const at::Tensor in = functional::to_functional_tensor(values).view(-1);
    StockWords words;
    if (seed.defined())
      words = {functional::to_functional_tensor(seed), in.sym_numel(), in.device()};
    out = round_floats_by_stock(f, widen(f, in), words)
              .to(in.scalar_type())
              .view_symint(values.sym_sizes());
  }
  functional::sync(out);
  return functional::from_functional_tensor(out);
}

at::Tensor encode_by_stock(const Format& f, const at::Tensor& stock, ScalarType codes,
                           const RandomWords& seed) {
  expect_stock_way(f);
  const at::Tensor in = flat(stock);
  const at::Tensor values = in.scalar_type() == ScalarType::Long ? doubles_of(in) : in;
  const StockWords words = draw(f, seed, in);
  at::Tensor out;
  if (by_bits(f)) {
    out = encode_floats_by_stock(f, widen(f, values), words).to(codes);
  } else if (by_bits_of_float(f)) {
    const at::Tensor code = fixed_codes_by_bits(f, values, words);
    out = code.bitwise_and(static_cast<int64_t>(f.code_mask())).to(codes);
  } else if (f.bits > 16) {
    out = encode_wide_by_stock(f, values.to(ScalarType::Double), words).to(codes);
  } else {
    out = look_up(f, values, words, &RoundingSteps::codes);
  }
  return shaped_as(out, stock);
}

at::Tensor decode_by_stock(const Format& f, const at::Tensor& codes, ScalarType type) {
  const at::Tensor in = flat(codes);
  at::Tensor out;
  if (f.bits <= 16) {
    const at::Tensor places =
        in.to(ScalarType::Long).bitwise_and(static_cast<int64_t>(f.code_mask()));
    out = at::take(values_of_codes(f, type, codes.device()), places);
  } else if (f.kind == Kind::Float) {
    out = decode_floats_by_stock(f, in, type);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !f.is_takum(),
        "expected a format that stock operators decode, but got a takum of more than 16 bits. "
        "Move the tensor with .cpu() first.");
    out = decode_wide_by_stock(f, in).to(type);
  }
  return shaped_as(out, codes);
}

at::Tensor narrow_to_odd_by_stock(const at::Tensor& values) {
  const at::Tensor near = values.to(ScalarType::Float);
  const at::Tensor lost = values.sub(near.to(ScalarType::Double)); // exact; NaN for infinities
  const at::Tensor bits = near.view(ScalarType::Int);
  // An even neighbour is replaced by the odd one on the value's side.
  const at::Tensor outwards = lost.gt(0) ^ near.signbit();
  const at::Tensor step = outwards.to(ScalarType::Int).mul(2).sub(1);
  const at::Tensor moves = lost.ne(0) & lost.isfinite() & bits.bitwise_and(1).eq(0);
  return (bits + step * moves).view(ScalarType::Float);
}

} // namespace at::formats
