#include <ATen/native/formats/chop/Chop.h>

#include <ATen/EmptyTensor.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/Observation.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/native/formats/stock/StockCodec.h>
#include <ATen/native/formats/stock/StockCodes.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/empty_strided.h>
#include <c10/formats/codec/BitFlips.h>
#include <c10/formats/codec/FastRound.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace at::formats {
namespace {

void flip_bits(const Format& f, char* codes, int64_t n, double probability,
               const RandomWords& words) {
  const int width = f.itemsize();
  const auto limit = static_cast<uint64_t>(std::ldexp(probability, 32));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t word =
        c10::formats::random_word(words.seed.number, words.first + static_cast<uint64_t>(i));
    if (word >> 32 >= limit) continue;
    uint64_t code = 0;
    std::memcpy(&code, codes + i * width, width); // little-endian: its low bytes come first
    code = c10::formats::flipped(f, code, static_cast<uint32_t>(word));
    std::memcpy(codes + i * width, &code, width);
  }
}

// Decodes to float32 or float64; exact if the format was encoded from that type.
template <typename T>
void decode_block(const CpuKernels& k, const Format& f, const void* codes, T* values, int64_t n) {
  if (sizeof(T) == sizeof(double) || f.fits_float()) return k.decode(f, codes, values, n);
  double wide[kTile];
  k.decode(f, codes, wide, n);
  std::transform(wide, wide + n, values, [](double v) { return static_cast<T>(v); });
}

// Whether a fixed-point format in a random mode can be rounded as a float format (float_of_fixed).
// That encoder is ten times as fast and takes the same random bits. `fit` then corrects the
// differences: saturation, NaN, minus zero.
bool is_quick_as_float(const Format& f, double flip_prob) {
  const bool random = (f.rounding == c10::formats::Rounding::Stochastic && f.random_bits == 0) ||
      f.rounding == c10::formats::Rounding::UpDown;
  return f.is_fixed() && random && f.overflow == c10::formats::Overflow::Saturate &&
      f.significand_bits() <= 20 && flip_prob == 0;
}

template <typename T>
void fit(const Format& fixed, T* x, int64_t n) {
  const T unit = std::ldexp(T{1}, -int{fixed.frac_bits});
  const T highest = static_cast<T>(fixed.max_code()) * unit;
  const T lowest = -static_cast<T>(fixed.lowest_magnitude()) * unit;
  for (int64_t i = 0; i < n; ++i)
    x[i] = std::isnan(x[i]) ? T{0} : std::min(std::max(x[i], lowest), highest) + T{0};
}

template <typename T>
void chop_all(const Format& f, const at::Tensor& in, const at::Tensor& out, double flip_prob,
              const RandomWords& words, const Seed& flip_seed) {
  const CpuKernels& k = kernels(in.device(), "chop");
  const T* values = in.const_data_ptr<T>();
  T* results = out.mutable_data_ptr<T>();
  const bool as_float = is_quick_as_float(f, flip_prob);
  const Format coded = as_float ? c10::formats::float_of_fixed(f) : f;
  const Recorder seen = recorder(f, results, values);
  at::parallel_for(0, in.numel(), 32768, [&](int64_t begin, int64_t end) {
    alignas(64) char codes[kTile * 8];
    T kept[kTile]; // exact values, kept for the recorder where results overwrite them
    for (int64_t i = begin; i < end; i += kTile) {
      const int64_t n = std::min(kTile, end - i);
      const bool keeps = seen && values == results;
      if (keeps) std::copy_n(values + i, n, kept);
      if (flip_prob > 0 || !k.round(f, values + i, results + i, n)) {
        k.encode(coded, values + i, codes, n, {words.seed, static_cast<uint64_t>(i)});
        if (flip_prob > 0) flip_bits(f, codes, n, flip_prob, {flip_seed, static_cast<uint64_t>(i)});
        decode_block(k, coded, codes, results + i, n);
        if (as_float) fit(f, results + i, n);
      }
      if (seen) seen.values(keeps ? kept : values + i, results + i, n);
    }
  });
}

// Works element by element, so `out` may be `in`.
void round_into(const at::Tensor& out, const at::Tensor& in, const Format& format, double flip_prob,
                const std::optional<at::Generator>& generator) {
  const RandomWords words = next_words(format, generator, in.device());
  const Seed flip_seed = flip_prob > 0 ? next_seed(generator, in.device()) : Seed();
  if (on_gpu(in.device())) {
    const Recorder seen = recorder(format, out.const_data_ptr(), in.const_data_ptr());
    const at::Tensor exact = seen && out.is_same(in) ? at::_ops::clone::call(in, {}) : in;
    chop_on_gpu(format, in, out, words, flip_prob, flip_seed);
    if (seen) count_values_on_gpu(seen, exact, out);
    return;
  }
  in.scalar_type() == c10::ScalarType::Float
      ? chop_all<float>(format, in, out, flip_prob, words, flip_seed)
      : chop_all<double>(format, in, out, flip_prob, words, flip_seed);
}

at::Tensor chop_by_stock(const at::Tensor& in, const Format& format, double flip_prob,
                         const std::optional<at::Generator>& generator) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const RandomWords words = next_words(format, generator, in.device());
  at::Tensor out;
  if (flip_prob > 0) {
    const RandomWords flips{next_seed(generator, in.device())};
    const at::Tensor codes = encode_by_stock(format, in, c10::ScalarType::Long, words);
    out = decode_by_stock(format, flip_by_stock(format, codes, flip_prob, flips),
                          format.fits_float() ? in.scalar_type() : c10::ScalarType::Double)
              .to(in.scalar_type());
  } else {
    out = round_by_stock(format, in, words);
  }
  if (const Recorder seen = recorder(format, out.const_data_ptr(), in.const_data_ptr()))
    count_on_host(seen, in, out);
  return out;
}

} // namespace

at::Tensor chop(const at::Tensor& values, const Format& format, double flip_prob,
                const std::optional<at::Generator>& generator) {
  if (by_stock(values.device())) return chop_by_stock(dense(values), format, flip_prob, generator);
  expect_kernels(values.device(), "chop"); // an error before any work
  const at::Tensor in = dense(values);
  at::Tensor out = in.device().is_cpu()
      ? at::Tensor(at::detail::empty_strided_cpu(in.sizes(), in.strides(), in.scalar_type()))
      : at::empty_strided(in.sizes(), in.strides(), in.options());
  round_into(out, in, format, flip_prob, generator);
  return out;
}

void chop_in_place(const at::Tensor& values, const Format& format,
                   const std::optional<at::Generator>& generator) {
  if (by_stock(values.device()))
    values.copy_(chop_by_stock(values, format, /*flip_prob=*/0, generator));
  else round_into(values, values, format, /*flip_prob=*/0, generator);
}

} // namespace at::formats
