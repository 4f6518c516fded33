#include <ATen/native/formats/operators/facts/NumberPlaces.h>

#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <c10/formats/codec/ExactCodec.h>

#include <algorithm>
#include <cmath>

namespace at::formats {

// A number as an element of the format, rounded once, as fill_ rounds it. The stock kernel's type
// has the format's values, so it does not round again. NaN, and infinities that the format has, are
// left to the rounding of the result.
static c10::IValue put_number(const c10::Scalar& number, const FormatEntry& entry) {
  using namespace c10::formats;
  const c10::Scalar filled = fill_number(number, entry);
  if (filled.isFloatingPoint() && !std::isfinite(filled.toDouble())) return filled.toDouble();
  const Format format = rounding_format(entry);
  const auto value_of = [&](uint64_t code) { return to_double(decode(format, code)); };
  const double value = filled.toDouble();
  // A value of the format needs no random word, and its call draws none.
  const bool moves = format.rounding == Rounding::UpDown ||
      (!filled.isFloatingPoint() && std::abs(value) > 0x1p53);
  const bool stays =
      is_stochastic(format.rounding) && !moves && value_of(encode(format, unpack(value))) == value;
  return stays ? value : value_of(encode_scalar(filled, entry));
}

// The same for a number in a GPU's memory, without reading it: the host does not wait, and does not
// warn of an infinity.
static at::Tensor put_on_gpu(const at::Tensor& number, const FormatEntry& entry) {
  at::Tensor value = number.to(at::kDouble);
  if (entry.format.infinity_is_nan()) {
    for (const double infinity : {HUGE_VAL, -HUGE_VAL})
      value = at::where(value.eq(infinity), compared_number(infinity, entry), value);
  }
  return decoded(encoded(value, entry), at::kDouble);
}

void exchange_numbers(const std::vector<NumberPlace>& places, size_t arguments,
                      torch::jit::Stack* stack) {
  const size_t base = stack->size() - arguments;
  const auto find_entry = [&](int64_t least_dims) -> const FormatEntry* {
    for (size_t i = base; i < stack->size(); ++i) {
      const c10::IValue& value = (*stack)[i];
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().dim() >= least_dims) {
        if (const FormatEntry* entry = entry_beneath(value.toTensor())) return entry;
      } else if (value.isTensorList() && !value.toTensorList().empty()) {
        if (const FormatEntry* entry = entry_beneath(value.toTensorList().get(0))) return entry;
      }
    }
    return nullptr;
  };
  for (const NumberPlace& place : places) {
    const bool put = place.use == NumberPlace::Use::Fill;
    c10::IValue& value = (*stack)[base + place.argument];
    if (value.isDouble() || value.isInt()) {
      if (!put && !(value.isDouble() && std::isinf(value.toDouble()))) continue;
      const FormatEntry* entry = find_entry(0);
      if (entry)
        value = put ? put_number(value.toScalar(), *entry)
                    : c10::IValue(compared_number(value.toDouble(), *entry));
    } else if (value.isTensor()) {
      // A stock tensor without dimensions instead of a number, together with a format tensor with
      // dimensions, which decides the dtype. (In a comparison it keeps its value, as other operands
      // do.)
      const at::Tensor& t = value.toTensor();
      const auto is_number = [](c10::ScalarType type) {
        return c10::isFloatingType(type) || type == c10::ScalarType::Long;
      };
      if (!put || !t.defined() || t.dim() != 0 || !computes(t.device()) || entry_beneath(t) ||
          !is_number(t.scalar_type()))
        continue;
      const FormatEntry* entry = find_entry(1);
      if (entry && !t.device().is_cpu()) value = put_on_gpu(t, *entry);
      else if (entry)
        value = at::scalar_tensor(put_number(t.item(), *entry).toScalar(),
                                  at::TensorOptions().dtype(at::kDouble));
    }
  }
}

bool float32_has(const std::vector<NumberPlace>& places, size_t arguments,
                 const torch::jit::Stack& stack) {
  const size_t base = stack.size() - arguments;
  return std::none_of(places.begin(), places.end(), [&](const NumberPlace& place) {
    const c10::IValue& value = stack[base + place.argument];
    if (value.isInt()) return std::abs(value.toInt()) > int64_t{1} << 24;
    return value.isDouble() && std::isfinite(value.toDouble()) &&
        !(static_cast<double>(static_cast<float>(value.toDouble())) == value.toDouble());
  });
}

} // namespace at::formats
