// The format tensor inside PyTorch's own tree: a plain TensorImpl whose dtype says its format.
// tools/intree puts this file in the place of overlay/.
#include <ATen/FormatTensor.h>

#include <ATen/native/formats/operators/boxed/MetaDevice.h>

#include <atomic>

namespace at::formats {

static std::atomic<bool> made_any{false};

bool any_format_tensor() {
  return made_any.load(std::memory_order_relaxed);
}

// PyTorch's autocast kernels need their key on a tensor, wherever it was made. They leave tensors
// of other dtypes alone (edits of autocast_mode).
static c10::DispatchKeySet autocast_keys(c10::Device device) {
  return device.is_cpu() ? c10::DispatchKeySet(c10::DispatchKey::AutocastCPU)
                         : c10::DispatchKeySet();
}

c10::intrusive_ptr<c10::TensorImpl> make_format_impl(c10::Storage storage,
                                                     const FormatEntry& entry) {
  if (!any_format_tensor()) made_any.store(true, std::memory_order_relaxed);
  const c10::Device device = storage.device();
  const auto keys = c10::DispatchKeySet(kFormatKey) | c10::DispatchKeySet(kWrappedBackend) |
      autocast_keys(device) | meta_keys(device);
  return c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), keys, c10::scalarTypeToTypeMeta(c10::formats::scalar_type(entry)));
}

const FormatEntry& entry_of(const at::TensorBase& t) {
  TORCH_INTERNAL_ASSERT(is_format_tensor(t), "expected a tensor of a number format");
  return c10::formats::format_entry(t.scalar_type());
}

} // namespace at::formats
