// A device of PrivateUse1 with separate memory: pages that the host may touch only while this file
// copies from and to them. Operators run on copies on the CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <optional>
#include <tuple>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

struct Pages {
  void* at;
  size_t bytes;
};

void release(void* context) {
  auto* pages = static_cast<Pages*>(context);
  munmap(pages->at, pages->bytes);
  delete pages;
}

struct PageAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    const size_t bytes = (n / 4096 + 1) * 4096;
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(at != MAP_FAILED, "mmap");
    return {at, new Pages{at, bytes}, &release, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "copy_data"); }
};

PageAllocator allocator;
REGISTER_ALLOCATOR(kDevice, &allocator);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
};

// Opens a storage's bytes to the host during its lifetime.
class Open {
 public:
  explicit Open(const at::Tensor& t) : pages_(nullptr) {
    if (t.device().type() == kDevice && t.storage().nbytes() > 0)
      pages_ = static_cast<Pages*>(t.storage().data_ptr().get_context());
    if (pages_) mprotect(pages_->at, pages_->bytes, PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (pages_) mprotect(pages_->at, pages_->bytes, PROT_NONE);
  }

 private:
  Pages* pages_;
};

// Returns a CPU tensor on a copy of the tensor's whole storage.
at::Tensor image(const at::Tensor& t) {
  const auto bytes = static_cast<int64_t>(t.storage().nbytes());
  at::Tensor copy = at::detail::empty_cpu({bytes}, at::kByte);
  {
    const Open open(t);
    if (bytes) std::memcpy(copy.mutable_data_ptr(), t.storage().data(), bytes);
  }
  at::Tensor same = at::detail::empty_cpu({0}, t.scalar_type());
  same.set_(copy.storage(), t.storage_offset(), t.sizes(), t.strides());
  return same;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  const bool writes_device = dst.device().type() == kDevice;
  const at::Tensor source = self.device().type() == kDevice ? image(self) : self;
  at::Tensor to = writes_device ? image(dst) : dst;
  to.copy_(source);
  if (writes_device && to.storage().nbytes()) {
    const Open open(dst);
    std::memcpy(dst.storage().mutable_data(), to.storage().data(), to.storage().nbytes());
  }
  return dst;
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

const at::Tensor& resize_memory(const at::Tensor& self, c10::IntArrayRef sizes,
                                std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const size_t bytes =
      at::detail::computeStorageNbytesContiguous(sizes, self.itemsize(), self.storage_offset());
  if (self.storage().nbytes() < bytes) {
    impl->unsafe_storage().set_data_ptr(allocator.allocate(bytes));
    impl->unsafe_storage().set_nbytes(bytes);
  }
  return self;
}

at::Tensor copy_resized(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) resize_memory(dst, self.sizes(), {});
  return copy_from(self, dst, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  return at::_local_scalar_dense(image(self));
}

// PyTorch asks a device of its own for these two, and the fallback would find no CPU kernel.
using Sizes = c10::IntArrayRef;

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, Sizes stride, Sizes padding,
                       Sizes dilation, bool transposed, Sizes output_padding, int64_t groups) {
  const std::optional<at::Tensor> b =
      bias && bias->defined() ? std::optional(image(*bias)) : std::nullopt;
  return at::convolution(image(x), image(weight), b, stride, padding, dilation, transposed,
                         output_padding, groups)
      .to(x.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, Sizes stride,
    Sizes padding, Sizes dilation, bool transposed, Sizes output_padding, int64_t groups,
    std::array<bool, 3> mask) {
  const c10::SmallVector<int64_t, 1> bias_sizes{grad.size(1)};
  const auto [dx, dw, db] =
      at::convolution_backward(image(grad), image(x), image(weight), Sizes(bias_sizes), stride,
                               padding, dilation, transposed, output_padding, groups, mask);
  const auto there = [&](const at::Tensor& t) { return t.defined() ? t.to(x.device()) : t; };
  return {there(dx), there(dw), there(db)};
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

} // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize_memory);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_resized);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

static const int registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), 0);
