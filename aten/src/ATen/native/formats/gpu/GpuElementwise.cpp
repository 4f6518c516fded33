#include <ATen/native/formats/gpu/GpuElementwise.h>

#include <algorithm>

namespace at::formats {

cuda::Elementwise gpu_elementwise(const at::TensorIterator& iterator,
                                  at::ArrayRef<const Operand*> operands, const Format& result,
                                  cuda::Arithmetic computing, const Seed& seed) {
  cuda::Elementwise e;
  e.result = result;
  e.in = computing;
  e.out = iterator.data_ptr(0);
  e.n = iterator.numel();
  e.seed = seed;
  int argument = 1;
  for (size_t j = 0; j < operands.size(); ++j) {
    const at::Tensor& t = operands[j]->tensor;
    e.inputs[j].number = operands[j]->number;
    if (!t.defined()) continue;
    e.inputs[j].data = iterator.data_ptr(argument++);
    e.inputs[j].format = is_format_tensor(t) ? &entry_of(t).format : nullptr;
  }
  if (iterator.is_contiguous()) return e;
  TORCH_CHECK_NOT_IMPLEMENTED(iterator.ndim() <= cuda::kMaxDims, "arithmetic: expected at most ",
                              cuda::kMaxDims,
                              " dimensions in which operands on a GPU are not contiguous, but got ",
                              iterator.ndim(), ". Use .contiguous() first.");
  e.layout.dims = iterator.ndim();
  for (int d = 0; d < iterator.ndim(); ++d) {
    e.layout.sizes[d] = iterator.shape()[d];
    for (int a = 0; a < iterator.ntensors(); ++a) e.layout.strides[a][d] = iterator.strides(a)[d];
  }
  return e;
}

void expect_narrow(bool narrow, const FormatEntry& entry) {
  TORCH_CHECK_NOT_IMPLEMENTED(narrow,
                              "arithmetic: expected a format whose arithmetic float64 can do (at "
                              "most 51 significant bits, products within its "
                              "exponents) on a GPU, but got ",
                              entry.name, ". Move it with .cpu() first.");
}

} // namespace at::formats
