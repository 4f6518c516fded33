#include <ATen/native/formats/operators/boxed/MetaDevice.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace at::formats {
namespace {

void without_meta(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kOnMetaKey);
  keys = keys.remove_backend(c10::BackendComponent::MetaBit);
  // A redispatch must leave out keys that fall through: for another backend they have another
  // kernel.
  if (op.hasKernelForDispatchKey(kFormatAutogradKey) &&
      op.isKernelFallthroughKernel(kFormatAutogradKey)) {
    keys = keys - c10::DispatchKeySet(c10::DispatchKey::AutogradFunctionality);
  }
  op.redispatchBoxed(keys, stack);
}

} // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&without_meta>());
}

} // namespace at::formats
