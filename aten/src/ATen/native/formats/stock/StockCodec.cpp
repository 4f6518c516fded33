#include <ATen/native/formats/stock/StockCodec.h>

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/native/formats/stock/StockRandom.h>
#include <ATen/native/formats/stock/StockRounding.h>
#include <ATen/native/formats/stock/StockTables.h>
#include <ATen/native/formats/stock/StockWide.h>
#include <ATen/ops/take.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <utility>

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
  return f.kind == Kind::Float;
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

bool by_integers(const Format& f) {
  return f.bits > 16 || f.overflow == Overflow::Wrap;
}

void use_few_bits(const Format& f, StockWords& words) {
  if (f.rounding == Rounding::Stochastic && f.random_bits != 0) words.use_few_bits(f);
}

StockWords draw(const Format& f, const RandomWords& words, const at::Tensor& like) {
  if (!c10::formats::is_stochastic(f.rounding)) return {};
  StockWords result(words.seed.number, like.numel(), like.device());
  use_few_bits(f, result);
  return result;
}

// One of the fields of each element's piece.
at::Tensor look_up(const Format& f, const at::Tensor& values, const StockWords& words,
                   at::Tensor RoundingSteps::* field) {
  const auto find = [&](uint64_t word) {
    RoundingSteps steps = rounding_steps(f, word, values.scalar_type(), values.device());
    return std::pair{steps, find_pieces(steps, values)};
  };
  const auto [steps, pieces] = find(0);
  const at::Tensor inner = at::take(steps.*field, pieces);
  if (!c10::formats::is_stochastic(f.rounding)) return inner;
  const auto [outer_steps, outer_pieces] = find(~uint64_t{0});
  const at::Tensor outer = at::take(outer_steps.*field, outer_pieces);
  if (tosses_coin(f.rounding)) return at::where(words.coins(), outer, inner);
  const at::Tensor up = draw_outer_pieces(f, values, at::take(steps.codes, pieces),
                                          at::take(outer_steps.codes, outer_pieces), words);
  return at::where(up, outer, inner);
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

// Rounding to odd in float64 and then to a format needs two more digits there.
void expect_short_integers(const Format& f, const at::Tensor& integers) {
  if (f.significand_bits() <= 51) return;
  constexpr int64_t most = int64_t{1} << 53;
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(integers.gt(most) | integers.lt(-most)).any().item<bool>(),
      "a cast to a format of more than 51 digits: expected integers from -2^53 to 2^53 for stock "
      "operators, but got a larger one. ",
      advice_without_stock(integers.device()));
}

// in_graph: set where code is compiled. Then integer operations replace lookups.
at::Tensor round_flat(const Format& f, const at::Tensor& in, const StockWords& words,
                      bool in_graph) {
  if (by_bits(f)) return round_floats_by_stock(f, widen(f, in), words).to(in.scalar_type());
  if (by_bits_of_float(f)) {
    const double unit = std::ldexp(1.0, -int{f.frac_bits});
    return fixed_codes_by_bits(f, in, words).to(in.scalar_type()).mul(unit);
  }
  if (!by_integers(f) && !in_graph) return look_up(f, in, words, &RoundingSteps::values);
  const at::Tensor codes = encode_wide_by_stock(f, in.to(ScalarType::Double), words);
  return decode_wide_by_stock(f, codes).to(in.scalar_type());
}

} // namespace

at::Tensor round_by_stock(const Format& f, const at::Tensor& values, const RandomWords& seed) {
  const at::Tensor in = flat(values);
  return shaped_as(round_flat(f, in, draw(f, seed, in), /*in_graph=*/false), values);
}

bool fuses_in_graphs(const Format& f) {
  return !f.is_table();
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
    use_few_bits(f, words);
    out = round_flat(f, in, words, /*in_graph=*/true).view_symint(values.sym_sizes());
  }
  functional::sync(out);
  return functional::from_functional_tensor(out);
}

at::Tensor encode_by_stock(const Format& f, const at::Tensor& stock, ScalarType codes,
                           const RandomWords& seed) {
  const at::Tensor in = flat(stock);
  const bool exact = f.overflow == Overflow::Wrap; // wrapping needs all digits of an integer
  const bool narrows = in.scalar_type() == ScalarType::Long && !exact;
  if (narrows) expect_short_integers(f, in);
  const at::Tensor values = narrows ? doubles_of(in) : in;
  const StockWords words = draw(f, seed, in);
  at::Tensor out;
  if (by_bits(f)) {
    out = encode_floats_by_stock(f, widen(f, values), words).to(codes);
  } else if (by_bits_of_float(f)) {
    const at::Tensor code = fixed_codes_by_bits(f, values, words);
    out = code.bitwise_and(static_cast<int64_t>(f.code_mask())).to(codes);
  } else if (by_integers(f)) {
    const at::Tensor wide = values.is_floating_point() ? values.to(ScalarType::Double) : values;
    out = encode_wide_by_stock(f, wide, words).to(codes);
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
    out = decode_wide_by_stock(f, in).to(type);
  }
  return shaped_as(out, codes);
}

void count_on_host(const Recorder& seen, const at::Tensor& exact, const at::Tensor& rounded) {
  const at::Tensor a = exact.cpu(), b = rounded.cpu();
  if (a.scalar_type() == ScalarType::Float)
    seen.values(a.const_data_ptr<float>(), b.const_data_ptr<float>(), a.numel());
  else seen.values(a.const_data_ptr<double>(), b.const_data_ptr<double>(), a.numel());
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
