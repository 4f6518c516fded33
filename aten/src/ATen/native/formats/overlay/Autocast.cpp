// torch.autocast with a dtype of ours: stock's kernels for autocast cast to it as to any dtype number (the casts are Copy.cpp's). What remains
// are the operators that take the widest dtype of their operands, which stock finds by the container: cat, stack and index_copy on the CPU. On a GPU,
// where autocast has no dtype of ours, others have such kernels.
#include <ATen/native/formats/overlay/Autocast.h>

#include <ATen/FormatTensor.h>
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace at::formats {

using at::autocast::CastPolicy;
using c10::ScalarType;

bool autocast_has_format() {
  return c10::formats::is_format_type(at::autocast::get_autocast_dtype(at::kCPU));
}

namespace {

bool is_own(const at::Tensor& t) {
  return t.defined() && entry_beneath(t) != nullptr;
}

// Before a list is copied: float32 and bfloat16 code pays for the question alone, and in a process without a tensor of ours not for that.
template <typename List>
bool any_own(const List& tensors) {
  return any_format_tensor() && std::any_of(tensors.begin(), tensors.end(), is_own);
}

// Among operands with one of ours: where autocast's dtype is ours and float32 is among them, they meet in float32, but for what is wider; else they
// are left alone.
std::vector<at::Tensor> widened(at::TensorList tensors) {
  std::vector<at::Tensor> result = tensors.vec();
  const auto is_float = [](const at::Tensor& t) { return t.defined() && !is_own(t) && t.scalar_type() == ScalarType::Float; };
  if (!autocast_has_format() || std::none_of(result.begin(), result.end(), is_float)) return result;
  const ExplicitDtypeGuard explicit_dtype; // float32 itself, also where it is a container
  for (at::Tensor& t : result) {
    if (is_own(t) && entry_of(t).format.fits_float()) t = t.to(ScalarType::Float);
  }
  return result;
}

template <typename Signature, Signature* F> // which of a name's overloads the signature says
using Stock = typename at::autocast::WrapFunction<CastPolicy::promote, at::kCPU, Signature, Signature, F>::type;

at::Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  if (!any_own(tensors)) return Stock<at::Tensor(const at::ITensorListRef&, int64_t), at::cat>::call(tensors, dim);
  const c10::impl::ExcludeDispatchKeyGuard beneath(c10::DispatchKey::AutocastCPU);
  const auto list = tensors.materialize();
  const std::vector<at::Tensor> given(list.begin(), list.end());
  return at::cat(widened(given), dim);
}

at::Tensor stack(at::TensorList tensors, int64_t dim) {
  if (!any_own(tensors)) return Stock<at::Tensor(at::TensorList, int64_t), at::stack>::call(tensors, dim);
  const c10::impl::ExcludeDispatchKeyGuard beneath(c10::DispatchKey::AutocastCPU);
  return at::stack(widened(tensors), dim);
}

at::Tensor index_copy(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source) {
  using Signature = at::Tensor(const at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&);
  if (!any_format_tensor() || (!is_own(self) && !is_own(source))) return Stock<Signature, at::index_copy>::call(self, dim, index, source);
  const c10::impl::ExcludeDispatchKeyGuard beneath(c10::DispatchKey::AutocastCPU);
  const auto both = widened({self, source});
  return at::index_copy(both[0], dim, index, both[1]);
}

// On a GPU: with an operand of ours, all are left alone, as on the CPU, where stock has no such kernels.
template <typename T>
bool has_own(const T&) {
  return false;
}
bool has_own(const at::Tensor& t) {
  return is_own(t);
}
bool has_own(const std::optional<at::Tensor>& t) {
  return t && is_own(*t);
}

template <typename Signature, Signature* F>
struct OnGpu;

template <typename Result, typename... Args, Result (*F)(Args...)>
struct OnGpu<Result(Args...), F> {
  static Result call(Args... args) {
    using Stock = typename at::autocast::WrapFunction<CastPolicy::promote, at::kCUDA, Result(Args...), Result(Args...), F>::type;
    if (!any_format_tensor() || !(has_own(args) || ...)) return Stock::call(args...);
    const c10::impl::ExcludeDispatchKeyGuard beneath(c10::DispatchKey::AutocastCUDA);
    return F(args...);
  }
};

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// In place of stock's kernels, of which the dispatcher warns; for stock tensors they do what stock's do, by the same template.
[[maybe_unused]] const bool registered = [] {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto& library = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCPU, __FILE__, __LINE__); // outlives exit
  library.impl("cat", TORCH_FN(cat));
  library.impl("stack", TORCH_FN(stack));
  library.impl("index_copy", TORCH_FN(index_copy));
  auto& gpu = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCUDA, __FILE__, __LINE__); // outlives exit
#define ON_GPU(NAME) gpu.impl(#NAME, TORCH_FN((OnGpu<decltype(ATEN_FN(NAME)), ATEN_FN(NAME)>::call)));
  AT_FORALL_PROMOTE(ON_GPU)
#undef ON_GPU
  return true;
}();

} // namespace
} // namespace at::formats
