// Factories that make a tensor from nothing. PyTorch's BackendSelect kernels send calls here by
// their dtype. Beside a stock wheel, hooks in front of Python's functions do
// (torch/torch_dtypes/host/hooks/factories.py). All others (zeros, full, arange, ...) are PyTorch's
// own, built from these.
#include <ATen/FormatTensor.h>

#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/operators/casts/Factories.h>
#include <ATen/ops/_new_zeros_with_same_feature_meta_native.h>
#include <ATen/ops/from_file_ops.h>
#include <ATen/ops/full_native.h>
#include <ATen/ops/is_same_size_native.h>
#include <torch/library.h>

#include <cmath>

namespace at::formats {
namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using c10::SymIntArrayRef;
using std::optional;

const FormatEntry& asked_for(optional<ScalarType> dtype, optional<Layout> layout,
                             optional<bool> pin) {
  expect_strided(layout);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !pin.value_or(false),
      "expected pin_memory=False for a new tensor of a number format, but got True; ",
      "make it, then call its pin_memory()");
  return c10::formats::format_entry(c10::dtype_or_default(dtype));
}

at::Tensor empty(SymIntArrayRef size, optional<ScalarType> dtype, optional<Layout> layout,
                 optional<Device> device, optional<bool> pin, optional<MemoryFormat> mf) {
  const FormatEntry& entry = asked_for(dtype, layout, pin);
  return uninitialised(
      empty_format(C10_AS_INTARRAYREF_SLOW(size), entry, device.value_or(Device(c10::kCPU)), mf));
}

at::Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, optional<ScalarType> dtype,
                         optional<Layout> layout, optional<Device> device, optional<bool> pin) {
  const FormatEntry& entry = asked_for(dtype, layout, pin);
  return uninitialised(empty_strided_format(C10_AS_INTARRAYREF_SLOW(size),
                                            C10_AS_INTARRAYREF_SLOW(stride), entry,
                                            device.value_or(Device(c10::kCPU))));
}

// The zeros of forward mode. In PyTorch they have no memory; for a format they do.
at::Tensor efficient_zeros(SymIntArrayRef size, optional<ScalarType> dtype, optional<Layout> layout,
                           optional<Device> device, optional<bool> pin) {
  return empty(size, dtype, layout, device, pin, {}).zero_();
}

at::Tensor from_file(c10::string_view name, optional<bool> shared, optional<int64_t> size,
                     optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device,
                     optional<bool> pin) {
  const FormatEntry& entry = asked_for(dtype, layout, pin);
  return format_alias(
      at::_ops::from_file::call(name, shared, size, entry.bits, layout, device, pin), entry);
}

} // namespace

// scalar_tensor_static's result for a format dtype (declared in ScalarOps.cpp, by an edit): a
// tensor without dimensions on the CPU.
at::Tensor number_of_format(const c10::Scalar& value, ScalarType type);
at::Tensor number_of_format(const c10::Scalar& value, ScalarType type) {
  return encoded_number(value, c10::formats::format_entry(type));
}

// Rounds a number that Python stores, in the mode of the surrounding block or the dtype (declared
// in python_scalars.h, by an edit).
double rounded_number(double value, ScalarType type);
double rounded_number(double value, ScalarType type) {
  return encoded_number(value, c10::formats::format_entry(type)).item().toDouble();
}

// torch.tensor's result: Python's numbers, as a float64 tensor, in the format dtype (declared in
// the same place).
at::Tensor of_numbers(const at::Tensor& numbers, ScalarType type);
at::Tensor of_numbers(const at::Tensor& numbers, ScalarType type) {
  const FormatEntry& entry = c10::formats::format_entry(type);
  double* values = numbers.data_ptr<double>();
  for (int64_t i = 0, n = numbers.numel(); i < n; ++i) {
    if (std::isinf(values[i])) values[i] = fill_number(values[i], entry);
  }
  return encoded(numbers, entry);
}

// The CPU tensor that stock kernels write a result to (declared in EmptyTensor.cpp, by an edit).
at::TensorBase result_of_format(at::IntArrayRef size, ScalarType type,
                                optional<MemoryFormat> memory_format);
at::TensorBase result_of_format(at::IntArrayRef size, ScalarType type,
                                optional<MemoryFormat> memory_format) {
  return empty_format(size, c10::formats::format_entry(type), Device(c10::kCPU), memory_format);
}
at::TensorBase result_of_format(at::IntArrayRef size, at::IntArrayRef stride, ScalarType type);
at::TensorBase result_of_format(at::IntArrayRef size, at::IntArrayRef stride, ScalarType type) {
  return empty_strided_format(size, stride, c10::formats::format_entry(type), Device(c10::kCPU));
}

// The stock type that holds every value of the dtype (declared in AccumulateType.cpp,
// TypeProperties.cpp and autocast_mode.cpp, by edits).
ScalarType compute_type(ScalarType type);
ScalarType compute_type(ScalarType type) {
  return c10::formats::format_entry(type).format.fits_float() ? ScalarType::Float
                                                              : ScalarType::Double;
}

// Of a tensor and its tangent, possibly of two dtypes, only sizes and strides are compared.
TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("is_same_size", &at::native::is_same_size);
  m.impl("_new_zeros_with_same_feature_meta", &at::native::_new_zeros_with_same_feature_meta);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficient_zeros);
  m.impl("from_file", &from_file);
  m.impl("full.out", &at::native::full_out); // calls fill_, which handles infinities
}

} // namespace at::formats
