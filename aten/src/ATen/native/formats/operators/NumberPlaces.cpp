#include <ATen/native/formats/operators/NumberPlaces.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/FillInfinity.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

namespace at::formats {

void exchange_infinities(const std::vector<NumberPlace>& places, size_t arguments, torch::jit::Stack* stack) {
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
    const auto exchanged = [&](double value, int64_t least_dims) {
      const FormatEntry* entry = find_entry(least_dims);
      if (!entry) return value;
      return place.use == NumberPlace::Use::Fill ? fill_number(value, *entry) : compared_number(value, *entry);
    };
    c10::IValue& value = (*stack)[base + place.argument];
    if (value.isDouble()) {
      if (std::isinf(value.toDouble())) value = exchanged(value.toDouble(), 0);
    } else if (value.isTensor()) {
      // A stock tensor without dimensions in a number's place, beside one of ours that has some and decides the dtype. (As an operand of a comparison
      // it keeps its value, as others do.)
      const at::Tensor& t = value.toTensor();
      if (place.use != NumberPlace::Use::Fill || !t.defined() || t.dim() != 0 || !c10::isFloatingType(t.scalar_type()) || !t.device().is_cpu() ||
          entry_beneath(t)) {
        continue;
      }
      const double number = t.item().toDouble();
      if (std::isinf(number)) value = at::scalar_tensor(exchanged(number, 1), at::TensorOptions().dtype(at::kDouble));
    }
  }
}

} // namespace at::formats
