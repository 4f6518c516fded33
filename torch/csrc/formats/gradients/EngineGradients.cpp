// The dtypes of gradients in the engine. The engine casts a node's result to the dtype of the
// tensor whose gradient it is, and takes the storage dtype for that. The float32 gradient of a C++
// torch::autograd::Function would be rounded to the storage dtype, and a gradient of one 8-bit
// format would become codes of another. So the engine is told that a format tensor takes any dtype,
// and the leaf casts once. Reaches into: the virtual tables of VariableHooks (grad_dtype, which
// InputMetadata calls for every tensor with a node) and of AccumulateGrad (apply).
#include <torch/csrc/formats/gradients/EngineGradients.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/VariableHooksInterface.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/formats/hooks/VirtualTables.h>

#include <utility>

namespace torch::formats {
namespace {

using at::impl::VariableHooksInterface;
using c10::ScalarType;
using torch::autograd::AccumulateGrad;
using torch::autograd::variable_list;

using GradDtype = std::optional<ScalarType> (*)(const VariableHooksInterface*,
                                                const at::TensorBase&);
GradDtype stock_grad_dtype = nullptr;

std::optional<ScalarType> grad_dtype(const VariableHooksInterface* self,
                                     const at::TensorBase& base) {
  const auto recorded = stock_grad_dtype(self, base);
  const at::OptionalTensorRef tensor(base);
  const at::formats::FormatEntry* entry = at::formats::entry_beneath(*tensor);
  return entry && recorded == entry->container ? std::nullopt : recorded;
}

using Accumulate = variable_list (*)(AccumulateGrad*, variable_list&&);
Accumulate stock_accumulate = nullptr;

variable_list accumulate(AccumulateGrad* self, variable_list&& given) {
  if (given.size() == 1 && given[0].defined() && self->variable.defined()) {
    const at::formats::FormatEntry *own = at::formats::entry_beneath(self->variable),
                                   *other = at::formats::entry_beneath(given[0]);
    if (own != other) {
      const auto asked = recorded_grad_dtype(self->variable);
      const bool by_default =
          asked && asked == (own ? own->container : self->variable.scalar_type());
      if (by_default)
        given[0] =
            at::formats::gradient_of_dtype(given[0], at::formats::dtype_number(self->variable));
    }
  }
  return stock_accumulate(self, std::move(given));
}

} // namespace

std::optional<ScalarType> recorded_grad_dtype(const at::Tensor& tensor) {
  return stock_grad_dtype ? stock_grad_dtype(at::impl::GetVariableHooks(), tensor)
                          : tensor.grad_dtype();
}

void patch_engine_gradients() {
  const at::Tensor leaf = at::empty({0}).requires_grad_();
  const auto node = torch::autograd::impl::grad_accumulator(leaf);
  stock_accumulate =
      replace_virtual(*node, "AccumulateGrad", place_in_table(&AccumulateGrad::apply), &accumulate);
  stock_grad_dtype =
      replace_virtual(*at::impl::GetVariableHooks(), "VariableHooks",
                      place_in_table(&VariableHooksInterface::grad_dtype), &grad_dtype);
}

} // namespace torch::formats
