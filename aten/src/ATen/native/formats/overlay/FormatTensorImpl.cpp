// The format tensor beside a stock wheel: a TensorImpl that points at its format and has its
// container's TypeMeta. A wheel's list of types cannot get a row for a format.
#include <ATen/FormatTensor.h>

#include <ATen/native/formats/operators/boxed/MetaDevice.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>

#include <atomic>

namespace at::formats {
namespace {

std::atomic<bool> made_any{false};

// An autocast with a format dtype casts all tensors in its block, wherever they were made. One with
// a stock dtype calls the casts too, and gets format tensors back unchanged (Copy.cpp).
c10::DispatchKeySet autocast_keys(c10::Device device) {
  if (device.is_cpu()) return c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);
  return device.is_cuda() ? c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA)
                          : c10::DispatchKeySet();
}

c10::DispatchKeySet keys_on(c10::Device device) {
  return c10::DispatchKeySet(kFormatKey) | c10::DispatchKeySet(kWrappedBackend) |
      autocast_keys(device) | meta_keys(device);
}

class FormatTensorImpl final : public c10::TensorImpl {
 public:
  FormatTensorImpl(c10::Storage storage, const FormatEntry& entry)
      : TensorImpl(std::move(storage), keys_on(storage.device()),
                   c10::scalarTypeToTypeMeta(entry.container)),
        entry_(&entry) {
    if (!any_format_tensor()) made_any.store(true, std::memory_order_relaxed);
  }

  const FormatEntry& entry() const { return *entry_; }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow) const override {
    return copy_with(version, allow);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow) const override {
    return copy_with(std::move(version), allow);
  }

  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& source) override {
    const auto* other = dynamic_cast<const FormatTensorImpl*>(source.get());
    TORCH_CHECK(other, "expected a tensor of a number format as new data of a ", entry_->name,
                " tensor, but got ", source->dtype());
    copy_tensor_metadata(source.get(), this, version_counter(), allow_tensor_metadata_change());
    entry_ = other->entry_;
    refresh_numel();
    refresh_contiguous();
  }

 private:
  template <typename Version>
  c10::intrusive_ptr<TensorImpl> copy_with(Version&& version, bool allow_change) const {
    // A wrapper's class copies it, with the tensors within.
    if (is_python_dispatch() &&
        !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python)) {
      c10::intrusive_ptr<TensorImpl> copy = (*c10::impl::getGlobalPyInterpreter())->detach(this);
      if (copy && !copy->is_inference()) {
        copy->set_version_counter(std::forward<Version>(version));
        copy->set_allow_tensor_metadata_change(allow_change);
      }
      if (copy) return copy;
    }
    auto copy = c10::make_intrusive<FormatTensorImpl>(c10::Storage(storage_), *entry_);
    copy_tensor_metadata(this, copy.get(), std::forward<Version>(version), allow_change);
    copy->refresh_numel();
    copy->refresh_contiguous();
    return copy;
  }

  const FormatEntry* entry_;
};

} // namespace

bool any_format_tensor() {
  return made_any.load(std::memory_order_relaxed);
}

c10::intrusive_ptr<c10::TensorImpl> make_format_impl(c10::Storage storage,
                                                     const FormatEntry& entry) {
  return c10::make_intrusive<FormatTensorImpl>(std::move(storage), entry);
}

const FormatEntry& entry_of(const at::TensorBase& t) {
  TORCH_INTERNAL_ASSERT(is_format_tensor(t), "expected a tensor of a number format");
  const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  TORCH_INTERNAL_ASSERT(typeid(*impl) == typeid(FormatTensorImpl),
                        "an operator made a tensor of our key without its format");
  return static_cast<const FormatTensorImpl*>(impl)->entry();
}

} // namespace at::formats
