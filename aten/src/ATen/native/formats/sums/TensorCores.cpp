#include <ATen/native/formats/sums/TensorCores.h>

#include <ATen/FormatRounding.h>
#include <ATen/Observation.h>
#include <ATen/Releases.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mm_ops.h>
#include <c10/formats/codec/HalfParts.h>

#include <map>
#include <mutex>
#include <utility>

namespace at::formats::tensor_cores {
namespace {

using c10::formats::HalfParts;
using c10::formats::HalfType;

// Two parts of each factor need four products, in as many launches. With fewer multiplications than
// this, float32 is as fast. (Not measured: no GPU has run it.)
constexpr double kManyProducts = 1 << 30;

std::optional<HalfParts> half_parts(const FormatEntry& entry) {
  static std::mutex mutex;
  static std::map<int, std::optional<HalfParts>> found;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, fresh] = found.try_emplace(entry.serial);
  if (fresh) place->second = c10::formats::find_half_parts(entry.format);
  return place->second;
}

struct Parts {
  Tensor first, second; // second: defined if there are two parts
};

// Parts of a transposed matrix are transposed: stock kernels multiply either.
std::pair<Parts, Parts> parts_of(const Sums& sums, const Tensor& a, const Tensor& b) {
  const HalfParts parts = *half_parts(sums.entry);
  const Tensor codes[] = {dense(bits_alias(a)), dense(bits_alias(b))};
  Parts made[2];
  cuda::PartsCast casts[2];
  for (int k = 0; k < 2; ++k) {
    const auto options =
        codes[k].options().dtype(parts.type == HalfType::Half ? at::kHalf : at::kBFloat16);
    const auto place = [&](Tensor& t) {
      t = at::empty_strided(codes[k].sizes(), codes[k].strides(), options);
      return static_cast<uint16_t*>(t.mutable_data_ptr());
    };
    uint16_t* const first = place(made[k].first);
    casts[k] = {codes[k].const_data_ptr(), first,
                parts.count == 2 ? place(made[k].second) : nullptr, codes[k].numel()};
  }
  const Gpu gpu(a.device(), "products on tensor cores");
  gpu.expect(sums.entry.format);
  gpu.check(gpu->decode_parts(sums.entry.format, parts, casts[0], casts[1], gpu.stream()));
  return {std::move(made[0]), std::move(made[1])};
}

// Multiplies in float32. The host, which replaces a GPU in tests, lacks this kernel and multiplies
// the same numbers in float32.
Tensor one_product(const Tensor& a, const Tensor& b) {
#if TORCH_DTYPES_SINCE(2, 11)
  if (a.is_cuda())
    return a.dim() == 2 ? at::_ops::mm_dtype::call(a, b, at::kFloat)
                        : at::_ops::bmm_dtype::call(a, b, at::kFloat);
#endif
  const Tensor x = a.to(at::kFloat), y = b.to(at::kFloat);
  return a.dim() == 2 ? at::_ops::mm::call(x, y) : at::_ops::bmm::call(x, y);
}

// Adds small sums first.
Tensor values_of_product(const Sums& sums, const Tensor& a, const Tensor& b) {
  const auto [x, y] = parts_of(sums, a, b);
  if (!x.second.defined()) return one_product(x.first, y.first);
  Tensor sum = one_product(x.second, y.second);
  sum.add_(one_product(x.second, y.first));
  sum.add_(one_product(x.first, y.second));
  return sum.add_(one_product(x.first, y.first));
}

} // namespace

bool serve(const Sums& sums, const Tensor& a, const Tensor& b, int64_t dims) {
  const bool machine =
      sums.policy.kind == Accumulation::Kind::Machine && sums.entry.compute == at::kFloat;
  const auto plain = [&](const Tensor& t) {
    return is_format_tensor(t) && on_gpu(t.device()) && t.dim() == dims && t.numel() > 0;
  };
  if (!machine || !plain(a) || !plain(b) || a.size(-1) != b.size(-2) ||
      a.size(0) != (dims == 3 ? b.size(0) : a.size(0)))
    return false;
  const std::optional<HalfParts> parts = half_parts(sums.entry);
  if (!parts || (parts->type == HalfType::BFloat16 && !multiplies_bfloat16(a.device())))
    return false;
  return parts->count == 1 ||
      static_cast<double>(a.numel()) * static_cast<double>(b.size(-1)) >= kManyProducts;
}

Tensor product(const Sums& sums, const Tensor& a, const Tensor& b) {
  return encoded(values_of_product(sums, a, b), sums.entry);
}

// Whether self is one row of the format, as a linear layer's bias is.
static bool is_row(const Tensor& t, const Tensor& sum, const FormatEntry& entry) {
  const bool one_row = t.dim() == 1 || (t.dim() == 2 && t.size(0) == 1);
  return one_row && is_format_tensor(t) && &entry_of(t) == &entry && t.device() == sum.device() &&
      t.is_contiguous() && sum.dim() == 2 && t.size(-1) == sum.size(1) && sum.is_contiguous();
}

Tensor added(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
             const Scalar& beta, const Scalar& alpha) {
  Tensor sum = values_of_product(sums, a, b);
  // Observation needs the sums themselves.
  if (alpha.toDouble() == 1 && beta.toDouble() == 1 && is_row(self, sum, sums.entry) &&
      !observing()) {
    const Tensor codes = empty_format(sum.sizes(), sums.entry, sum.device());
    const Format format = rounding_format(sums.entry);
    encode_with_row_on_gpu(format, sum, bits_alias(self), codes,
                           next_words(format, {}, sum.device()));
    return codes;
  }
  if (alpha.toDouble() != 1) sum.mul_(alpha);
  if (beta.toDouble() != 0) sum.add_(decoded(self, at::kFloat), beta);
  return encoded(sum, sums.entry);
}

} // namespace at::formats::tensor_cores
