// Factories that start from a format tensor: new_* and *_like, and random_, which draws the
// format's integers. (For those that start from nothing see
// torch/torch_dtypes/host/hooks/factories.py, and intree/Factories.cpp in a PyTorch tree.)
#include <ATen/native/formats/operators/casts/Factories.h>

#include <ATen/FormatTensor.h>

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/DrawnIntegers.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/random_ops.h>
#include <torch/library.h>

#include <limits>

namespace at::formats {

at::Tensor uninitialised(at::Tensor t) {
  const auto& context = at::globalContext();
  if (!context.deterministicAlgorithms() || !context.deterministicFillUninitializedMemory())
    return t;
  at::_ops::fill__Scalar::call(t, std::numeric_limits<double>::quiet_NaN());
  return t;
}

namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using c10::SymIntArrayRef;
using std::optional;

at::TensorOptions stock_options(ScalarType type, Device device, optional<bool> pin) {
  return at::TensorOptions().dtype(type).device(device).pinned_memory(pin);
}

// PyTorch allocates the pinned memory, for codes.
at::Tensor wrap_pinned(const at::Tensor& codes, const FormatEntry& entry) {
  return uninitialised(format_alias(codes, entry));
}

at::Tensor empty_like_kernel(const at::Tensor& self, optional<ScalarType> dtype,
                             optional<Layout> layout, optional<Device> device, optional<bool> pin,
                             optional<MemoryFormat> mf) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  expect_strided(layout);
  const FormatEntry* target = requested_format(dtype, entry_of(self));
  const Device where = device.value_or(self.device());
  if (target && pin.value_or(false)) {
    return wrap_pinned(at::empty_like(stock_alias(self, entry_of(self).bits),
                                      stock_options(target->bits, where, pin), mf),
                       *target);
  }
  if (target && where == self.device()) return uninitialised(empty_like_format(self, *target, mf));
  if (target)
    return uninitialised(empty_format(self.sizes(), *target, where,
                                      mf == MemoryFormat::Preserve ? std::nullopt : mf));
  return at::empty_like(stock_alias(self, entry_of(self).bits), stock_options(*dtype, where, pin),
                        mf);
}

at::Tensor new_empty_kernel(const at::Tensor& self, SymIntArrayRef size, optional<ScalarType> dtype,
                            optional<Layout> layout, optional<Device> device, optional<bool> pin) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  expect_strided(layout);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const FormatEntry* target = requested_format(dtype, entry_of(self));
  const Device where = device.value_or(self.device());
  if (target && pin.value_or(false))
    return wrap_pinned(at::empty(sizes, stock_options(target->bits, where, pin)), *target);
  if (target) return uninitialised(empty_format(sizes, *target, where));
  return at::empty(sizes, stock_options(*dtype, where, pin));
}

at::Tensor new_empty_strided_kernel(const at::Tensor& self, SymIntArrayRef size,
                                    SymIntArrayRef stride, optional<ScalarType> dtype,
                                    optional<Layout> layout, optional<Device> device,
                                    optional<bool> pin) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  expect_strided(layout);
  const FormatEntry* target = requested_format(dtype, entry_of(self));
  const Device where = device.value_or(self.device());
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  if (target && pin.value_or(false))
    return wrap_pinned(at::empty_strided(sizes, strides, stock_options(target->bits, where, pin)),
                       *target);
  if (target) return uninitialised(empty_strided_format(sizes, strides, *target, where));
  return at::empty_strided(sizes, strides, stock_options(*dtype, where, pin));
}

at::Tensor fill_new(at::Tensor t, const c10::Scalar& value) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::_ops::fill__Scalar::call(t, value);
  return t;
}

at::Tensor full_like_kernel(const at::Tensor& self, const c10::Scalar& value,
                            optional<ScalarType> dtype, optional<Layout> layout,
                            optional<Device> device, optional<bool> pin,
                            optional<MemoryFormat> mf) {
  return fill_new(empty_like_kernel(self, dtype, layout, device, pin, mf), value);
}
at::Tensor zeros_like_kernel(const at::Tensor& self, optional<ScalarType> dtype,
                             optional<Layout> layout, optional<Device> device, optional<bool> pin,
                             optional<MemoryFormat> mf) {
  return full_like_kernel(self, int64_t{0}, dtype, layout, device, pin, mf);
}
at::Tensor ones_like_kernel(const at::Tensor& self, optional<ScalarType> dtype,
                            optional<Layout> layout, optional<Device> device, optional<bool> pin,
                            optional<MemoryFormat> mf) {
  return full_like_kernel(self, int64_t{1}, dtype, layout, device, pin, mf);
}
at::Tensor new_full_kernel(const at::Tensor& self, SymIntArrayRef size, const c10::Scalar& value,
                           optional<ScalarType> dtype, optional<Layout> layout,
                           optional<Device> device, optional<bool> pin) {
  return fill_new(new_empty_kernel(self, size, dtype, layout, device, pin), value);
}
at::Tensor new_zeros_kernel(const at::Tensor& self, SymIntArrayRef size, optional<ScalarType> dtype,
                            optional<Layout> layout, optional<Device> device, optional<bool> pin) {
  return new_full_kernel(self, size, int64_t{0}, dtype, layout, device, pin);
}
at::Tensor new_ones_kernel(const at::Tensor& self, SymIntArrayRef size, optional<ScalarType> dtype,
                           optional<Layout> layout, optional<Device> device, optional<bool> pin) {
  return new_full_kernel(self, size, int64_t{1}, dtype, layout, device, pin);
}

// Draws integers up to the last one before which the format has every integer, as PyTorch does for
// its floats. The compute type's range would overflow the format.
at::Tensor& random_kernel(at::Tensor& self, optional<at::Generator> generator) {
  const int64_t most = counts_to(entry_of(self).format);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::_ops::random__to::call(self, most + 1, std::move(generator));
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("random_", &random_kernel);
  m.impl("empty_like", &empty_like_kernel);
  m.impl("new_empty", &new_empty_kernel);
  m.impl("new_empty_strided", &new_empty_strided_kernel);
  m.impl("full_like", &full_like_kernel);
  m.impl("zeros_like", &zeros_like_kernel);
  m.impl("ones_like", &ones_like_kernel);
  m.impl("new_full", &new_full_kernel);
  m.impl("new_zeros", &new_zeros_kernel);
  m.impl("new_ones", &new_ones_kernel);
}

} // namespace at::formats
