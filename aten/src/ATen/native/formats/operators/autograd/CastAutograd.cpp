#include <ATen/native/formats/operators/autograd/CastAutograd.h>

#include <ATen/AutogradNode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/real.h>
#include <ATen/ops/to_ops.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace at::formats {
namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using std::optional;
using torch::autograd::Node;
using torch::autograd::variable_list;

// The part of a gradient for a real tensor. A complex result's gradient has an imaginary part,
// which is dropped without a warning.
at::Tensor real_part_for(const at::Tensor& gradient, ScalarType target) {
  return gradient.is_complex() && !c10::isComplexType(target) ? at::real(gradient) : gradient;
}

// Casts a gradient back to the dtype that the forward cast came from. Only this node knows it: the
// stock formula would remember the container. It is a node like PyTorch's own, because torch.func
// does not differentiate a torch::autograd::Function.
struct CastBackward final : Node {
  ScalarType dtype; // a stock dtype, used if format is nullptr
  const FormatEntry* format;
  Device device;

  CastBackward(ScalarType from, Device where)
      : dtype(from),
        format(c10::formats::is_format_type(from) ? &c10::formats::format_entry(from) : nullptr),
        device(where) {}
  std::string name() const override { return "ToCopyBackward"; }
  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()}; // an undefined gradient stays undefined
    const ExplicitDtypeGuard explicit_dtype;
    const HiddenFromModes hidden;
    const ScalarType target = format ? c10::formats::scalar_type(*format) : dtype;
    return {at::_ops::to_device::call(real_part_for(grads[0], target), device, target, false, false,
                                      {})};
  }
};

// Casts gradients after the node, instead of casting operands before it: tensors that the formula
// saved, and their versions, stay the operands' own.
struct GradientDtypes final : torch::autograd::FunctionPostHook {
  std::vector<ScalarType> dtypes;

  explicit GradientDtypes(std::vector<ScalarType> operands) : dtypes(std::move(operands)) {}
  variable_list operator()(const variable_list& gradients, const variable_list&) override {
    TORCH_INTERNAL_ASSERT(gradients.size() <= dtypes.size(), "a node with ", dtypes.size(),
                          " operands gave ", gradients.size(), " gradients");
    variable_list own;
    for (size_t i = 0; i < gradients.size(); ++i)
      own.push_back(gradient_of_dtype(gradients[i], dtypes[i]));
    return own;
  }
};

} // namespace

void record_cast(const at::Tensor& result, ScalarType from, Device device,
                 torch::autograd::edge_list&& edges) {
  const auto node = make_node<CastBackward>(from, device);
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(result, node);
}

at::Tensor gradient_of_dtype(const at::Tensor& gradient, ScalarType dtype, bool stock_too) {
  if (!gradient.defined()) return gradient;
  const FormatEntry* own = entry_beneath(gradient);
  const bool ours = own || c10::formats::is_format_type(dtype);
  if ((own ? c10::formats::scalar_type(*own) : gradient.scalar_type()) == dtype ||
      !(ours || stock_too))
    return gradient;
  const ExplicitDtypeGuard exact;
  const HiddenFromModes hidden;
  return at::_ops::to_dtype::call(real_part_for(gradient, dtype), dtype, false, false, {});
}

void keep_gradient_dtypes(const at::Tensor& result, std::vector<ScalarType> dtypes) {
  if (const auto& node = result.grad_fn())
    node->add_post_hook(std::make_unique<GradientDtypes>(std::move(dtypes)));
}

at::Tensor to_copy_autograd(const at::Tensor& self, optional<ScalarType> dtype,
                            optional<Layout> layout, optional<Device> device, optional<bool>,
                            bool non_blocking, optional<MemoryFormat> memory_format) {
  expect_strided(layout);
  const ScalarType own = dtype_number(self);
  ScalarType target = dtype.value_or(own);
  if (const FormatEntry* entry = entry_beneath(self)) {
    if (const FormatEntry* format = requested_format(target, *entry))
      target = c10::formats::scalar_type(*format);
  }
  std::optional<HiddenFromModes> hidden;
  if (c10::formats::is_format_type(target)) {
    if (self.is_nested()) expect_ordinary(self, target); // or its own _to_copy would run next
    hidden.emplace();
  }
  const ExplicitDtypeGuard explicit_dtype;
  const bool differentiable = c10::formats::is_format_type(target) || c10::isFloatingType(target) ||
      c10::isComplexType(target);
  const auto cast = [&](const at::Tensor& t) {
    return at::_ops::_to_copy::call(t, target, {}, device, {}, non_blocking, memory_format);
  };
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    result = cast(self);
  }
  if (!differentiable) return result;
  if (torch::autograd::compute_requires_grad(self)) {
    record_cast(result, own, self.device(), torch::autograd::collect_next_edges(self));
  }
  if (torch::autograd::isFwGradDefined(self))
    result._set_fw_grad(cast(self._fw_grad(/*level=*/0)), /*level=*/0, /*is_inplace_op=*/false);
  return result;
}

} // namespace at::formats
