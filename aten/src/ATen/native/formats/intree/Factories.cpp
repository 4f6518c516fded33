// Factories that start from nothing. PyTorch's BackendSelect kernels send them here by their dtype; beside a stock wheel, hooks in front of Python's
// functions do (torch/torch_dtypes/_overlay/factories.py). All others (zeros, full, arange, ...) are PyTorch's own, made from these.
#include <ATen/FormatTensor.h>

#include <ATen/native/formats/FillInfinity.h>
#include <ATen/native/formats/operators/Factories.h>
#include <torch/library.h>

namespace at::formats {
namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using c10::SymIntArrayRef;
using std::optional;

const FormatEntry& asked_for(optional<ScalarType> dtype, optional<Layout> layout, optional<bool> pin) {
  expect_strided(layout);
  TORCH_CHECK_NOT_IMPLEMENTED(!pin.value_or(false), "expected pin_memory=False for a new tensor of a number format, but got True; ",
                              "make it, then call its pin_memory()");
  return c10::formats::format_entry(c10::dtype_or_default(dtype));
}

at::Tensor empty(SymIntArrayRef size, optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device, optional<bool> pin,
                 optional<MemoryFormat> mf) {
  const FormatEntry& entry = asked_for(dtype, layout, pin);
  return uninitialised(empty_format(C10_AS_INTARRAYREF_SLOW(size), entry, device.value_or(Device(c10::kCPU)), mf));
}

at::Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device,
                         optional<bool> pin) {
  const FormatEntry& entry = asked_for(dtype, layout, pin);
  return uninitialised(
      empty_strided_format(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), entry, device.value_or(Device(c10::kCPU))));
}

// The zeros of forward mode, which stock has without memory: of ours they have some.
at::Tensor efficient_zeros(SymIntArrayRef size, optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device, optional<bool> pin) {
  return empty(size, dtype, layout, device, pin, {}).zero_();
}

} // namespace

// What PyTorch's scalar_tensor_static gives for a dtype of ours (declared in ScalarOps.cpp, by an edit): a tensor without dimensions on the CPU.
at::Tensor number_of_format(const c10::Scalar& value, ScalarType type);
at::Tensor number_of_format(const c10::Scalar& value, ScalarType type) {
  return encoded_number(value, c10::formats::format_entry(type));
}

// What torch.tensor puts in the place of an infinity (declared in python_scalars.h, by an edit).
double fill_number(double value, ScalarType type);
double fill_number(double value, ScalarType type) {
  return fill_number(value, c10::formats::format_entry(type));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficient_zeros);
}

} // namespace at::formats
