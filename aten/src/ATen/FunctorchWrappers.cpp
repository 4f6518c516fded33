// Reaches into: the tensors that torch.func wraps around others. at::functorch::maybeGetTensorWrapper is exported, but the header that
// defines its class includes one that the wheels leave out (nlohmann/json.hpp), so the beginning of the class is repeated here.
#include <ATen/FormatTensor.h>

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/functorch/BatchedTensorImpl.h>

namespace at::functorch {
struct TensorWrapper;
TORCH_API TensorWrapper* maybeGetTensorWrapper(const Tensor& tensor);
} // namespace at::functorch

namespace at::formats {
namespace {

// ATen/functorch/TensorWrapper.h: a TensorImpl whose first member is the tensor within.
struct GradWrapper final : c10::TensorImpl {
  GradWrapper() = delete;
  at::Tensor value;
};

} // namespace

const FormatEntry* entry_beneath(const at::Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet wrappers({DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper, DispatchKey::Functionalize});
  if (!t.defined()) return nullptr;
  const c10::DispatchKeySet keys = t.unsafeGetTensorImpl()->key_set();
  const bool functional = keys.has(DispatchKey::Functionalize); // has the keys of the tensor within, ours among them
  if (is_format_tensor(t) && !functional) return &entry_of(t);
  if (!keys.has_any(wrappers)) return nullptr;
  if (functional) return entry_beneath(at::functionalization::impl::unsafeGetFunctionalWrapper(t)->value());
  if (const auto* batched = at::functorch::maybeGetBatchedImpl(t)) return entry_beneath(batched->value());
  if (const auto* wrapper = at::functorch::maybeGetTensorWrapper(t)) return entry_beneath(reinterpret_cast<const GradWrapper*>(wrapper)->value);
  return nullptr;
}

} // namespace at::formats
