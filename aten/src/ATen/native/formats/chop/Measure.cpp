#include <ATen/native/formats/chop/Measure.h>

#include <ATen/FormatTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/native/formats/stock/StockCodec.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/to_ops.h>

#include <algorithm>
#include <type_traits>

namespace at::formats {
namespace {

constexpr uint64_t kSeed = 0x9e37'79b9'7f4a'7c15; // any number would do

template <typename T>
void measure_as(const at::Tensor& in, const c10::formats::Format& f, const Recorder& seen) {
  const CpuKernels& k = kernels(in.device(), "observe");
  const T* values = in.const_data_ptr<T>();
  at::parallel_for(0, in.numel(), 32768, [&](int64_t begin, int64_t end) {
    alignas(64) char codes[kTile * 8];
    alignas(64) T rounded[kTile];
    for (int64_t i = begin; i < end; i += kTile) {
      const int64_t n = std::min(kTile, end - i);
      if (k.round(f, values + i, rounded, n)) {
        seen.values(values + i, rounded, n);
      } else {
        k.encode(f, values + i, codes, n, {kSeed, static_cast<uint64_t>(i)});
        seen.codes(values + i, codes, n);
      }
    }
  });
}

} // namespace

static void measure_on_gpu(const at::Tensor& in, const c10::formats::Format& f,
                           const Recorder& seen) {
  const at::Tensor values =
      f.fits_float() ? in : at::_ops::to_dtype::call(in, c10::ScalarType::Double, false, false, {});
  const at::Tensor rounded = at::_ops::empty_like::call(values, {}, {}, {}, {}, {});
  chop_on_gpu(f, values, rounded, {kSeed}, 0, {});
  count_values_on_gpu(seen, values, rounded);
}

static void measure_by_stock(const at::Tensor& in, const c10::formats::Format& f,
                             const Recorder& seen) {
  const at::Tensor values = f.fits_float() ? in : in.to(c10::ScalarType::Double);
  count_on_host(seen, values, round_by_stock(f, values, {kSeed}));
}

void measure(const at::Tensor& values, const c10::formats::Format& format, const Recorder& seen) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const bool wide = values.scalar_type() == c10::ScalarType::Double;
  const c10::ScalarType type = wide ? c10::ScalarType::Double : c10::ScalarType::Float;
  const at::Tensor in = at::_ops::to_dtype::call(values, type, false, false, {});
  if (by_stock(in.device())) return measure_by_stock(dense(in), format, seen);
  if (on_gpu(in.device())) return measure_on_gpu(dense(in), format, seen);
  wide ? measure_as<double>(dense(in), format, seen) : measure_as<float>(dense(in), format, seen);
}

} // namespace at::formats
