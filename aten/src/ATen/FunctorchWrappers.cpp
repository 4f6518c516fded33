// The format within the tensors that torch.func and functionalization wrap around others.
#include <ATen/FormatTensor.h>

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/TensorWrapper.h>

namespace at::formats {

const FormatEntry* entry_beneath(const at::Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet wrappers({DispatchKey::FuncTorchBatched,
                                          DispatchKey::FuncTorchGradWrapper,
                                          DispatchKey::Functionalize});
  if (!t.defined()) return nullptr;
  const c10::DispatchKeySet keys = t.unsafeGetTensorImpl()->key_set();
  // It has the keys of the tensor within, also a format tensor's.
  const bool functional = keys.has(DispatchKey::Functionalize);
  if (is_format_tensor(t) && !functional) return &entry_of(t);
  if (!keys.has_any(wrappers)) return nullptr;
  if (functional)
    return entry_beneath(at::functionalization::impl::unsafeGetFunctionalWrapper(t)->value());
  if (const auto* batched = at::functorch::maybeGetBatchedImpl(t))
    return entry_beneath(batched->value());
  if (const auto* wrapper = at::functorch::maybeGetTensorWrapper(t))
    return entry_beneath(wrapper->value());
  return nullptr;
}

} // namespace at::formats
