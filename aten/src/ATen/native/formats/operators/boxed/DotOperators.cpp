#include <ATen/native/formats/operators/boxed/DotOperators.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/sums/Accumulate.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/sums/TensorCores.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/operators/facts/OperatorFacts.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/resize_ops.h>

#include <map>
#include <type_traits>
#include <utility>

namespace at::formats {
namespace {

using accumulated::Divided;
using accumulated::Sums;
using at::Tensor;
using c10::IValue;
using torch::jit::Stack;
using Dtype = std::optional<c10::ScalarType>;
using Integers = std::vector<int64_t>;

// ---- from a schema's arguments to a function's: by place, each as the type that the function takes ----

template <typename Result, typename... Types, size_t... Places>
Result call_typed(Result (*function)(const Sums&, Types...), const Sums& sums, const IValue* arguments, std::index_sequence<Places...>) {
  return function(sums, arguments[Places].to<std::decay_t<Types>>()...);
}

template <typename Result, typename... Types>
Result call_typed(Result (*function)(const Sums&, Types...), const Sums& sums, const IValue* arguments, size_t count) {
  TORCH_INTERNAL_ASSERT(sizeof...(Types) <= count); // more follow: out, or what no policy looks at
  return call_typed(function, sums, arguments, std::index_sequence_for<Types...>());
}

template <auto function>
auto typed(const Sums& sums, const IValue* arguments, size_t count) {
  return call_typed(function, sums, arguments, count);
}

// ---- functions whose arguments are not yet those of Accumulate.h: as their schemas have them ----

template <Divided divided>
Tensor reduce_all(const Sums& sums, const Tensor& self, Dtype dtype) {
  return accumulated::reduce_all(sums, self, dtype, divided);
}
template <Divided divided>
Tensor reduce_dims(const Sums& sums, const Tensor& self, const std::optional<Integers>& dims, bool keep, Dtype dtype) {
  return accumulated::reduce_dims(sums, self, dims ? c10::OptionalArrayRef<int64_t>(*dims) : c10::OptionalArrayRef<int64_t>(), keep, dtype, divided);
}

Convolution convolution_of(const Integers& stride, const Integers& padding, const Integers& dilation, bool transposed, const Integers& output_padding,
                           int64_t groups) {
  const auto list = [](const Integers& v) { return c10::SmallVector<int64_t, 3>(v.begin(), v.end()); };
  return {list(stride), list(padding), list(dilation), list(output_padding), transposed, groups};
}
Tensor convolution(const Sums& sums, const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, const Integers& stride,
                   const Integers& padding, const Integers& dilation, bool transposed, const Integers& output_padding, int64_t groups) {
  return accumulated::convolution(sums, x, w, bias.value_or(Tensor()), convolution_of(stride, padding, dilation, transposed, output_padding, groups));
}
// By time, batch and channel.
Tensor conv_tbc(const Sums& sums, const Tensor& x, const Tensor& w, const Tensor& bias, int64_t padding) {
  const Convolution conv = convolution_of({1}, {padding}, {1}, false, {0}, 1);
  return accumulated::convolution(sums, x.permute({1, 2, 0}), w.permute({2, 1, 0}), bias, conv).permute({2, 0, 1}).contiguous();
}
std::array<Tensor, 3> convolution_backward(const Sums& sums, const Tensor& grad, const Tensor& x, const Tensor& w,
                                           const std::optional<Integers>& /*bias_sizes*/, const Integers& stride, const Integers& padding,
                                           const Integers& dilation, bool transposed, const Integers& output_padding, int64_t groups,
                                           const std::array<bool, 3>& wanted) {
  const Convolution conv = convolution_of(stride, padding, dilation, transposed, output_padding, groups);
  return accumulated::convolution_backward(sums, grad, x, w, conv, wanted);
}

// ---- the table ----

using Kernel = Tensor (*)(const Sums&, const IValue*, size_t);

// By name and overload, without "out" and without the underscore of in-place ones.
const std::map<std::string, Kernel>& dot_kernels() {
  static const std::map<std::string, Kernel> table = {
      {"mm", &typed<&accumulated::mm>},
      {"bmm", &typed<&accumulated::bmm>},
      {"mv", &typed<&accumulated::mv>},
      {"dot", &typed<&accumulated::dot>},
      {"vdot", &typed<&accumulated::dot>},
      {"addmm", &typed<&accumulated::addmm>},
      {"addr", &typed<&accumulated::addr>},
      {"addmv", &typed<&accumulated::addmv>},
      {"baddbmm", &typed<&accumulated::baddbmm>},
      {"addbmm", &typed<&accumulated::addbmm>},
      {"sum", &typed<&reduce_all<Divided::ByOne>>},
      {"sum.dim_IntList", &typed<&reduce_dims<Divided::ByOne>>},
      {"sum.IntList_out", &typed<&reduce_dims<Divided::ByOne>>},
      {"mean", &typed<&reduce_all<Divided::ByCount>>},
      {"mean.dim", &typed<&reduce_dims<Divided::ByCount>>},
      {"mean.out", &typed<&reduce_dims<Divided::ByCount>>},
      {"mean.dtype_out", &typed<&reduce_all<Divided::ByCount>>},
      {"cumsum", &typed<&accumulated::cumsum>},
      {"convolution", &typed<&convolution>},
      {"_convolution", &typed<&convolution>},
      {"_convolution.deprecated", &typed<&convolution>},
      {"conv_tbc", &typed<&conv_tbc>},
  };
  return table;
}

// On a GPU's tensor cores, by the operator's name: the place of its factors, and their dimensions.
struct CoreKernel {
  Kernel kernel;
  size_t factors;
  int64_t dims;
};
const std::map<std::string, CoreKernel>& core_kernels() {
  static const std::map<std::string, CoreKernel> table = {
      {"mm", {&typed<&tensor_cores::product>, 0, 2}},
      {"bmm", {&typed<&tensor_cores::product>, 0, 3}},
      {"addmm", {&typed<&tensor_cores::added>, 1, 2}},
      {"baddbmm", {&typed<&tensor_cores::added>, 1, 3}},
  };
  return table;
}

Kernel core_kernel(const std::string& name, const std::string& overload, const Sums& sums, const IValue* arguments) {
  if (!overload.empty() && overload != "out") return nullptr;
  const auto found = core_kernels().find(name);
  if (found == core_kernels().end()) return nullptr;
  const auto& [kernel, factors, dims] = found->second;
  return tensor_cores::serve(sums, arguments[factors].toTensor(), arguments[factors + 1].toTensor(), dims) ? kernel : nullptr;
}

} // namespace

std::set<std::string> dot_operators() {
  std::set<std::string> names = {"convolution_backward", "scaled_dot_product_attention"};
  for (const auto& [name, kernel] : dot_kernels()) names.insert(name.substr(0, name.find('.')));
  return names;
}

bool run_dot_operator(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size(), base = stack->size() - count;
  const FormatEntry* entry = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& v = (*stack)[base + i];
    if (!v.isTensor() || !v.toTensor().defined() || schema.arguments()[i].name() == "attn_mask") continue;
    if (plan.has(fact::FusedProducts) && !entry_beneath(v.toTensor()) && !c10::isFloatingType(v.toTensor().scalar_type()))
      continue; // where groups end
    const FormatEntry* own = entry_beneath(v.toTensor()); // attention comes in torch.func's wrappers, too
    if (!own || (entry && entry != own)) return false;
    entry = own;
  }
  if (!entry) return false;
  if (plan.mask >= 0) expect_mask(plan, (*stack)[base + plan.mask], *entry);
  const Accumulation policy = accumulation_of(*entry);
  const IValue* arguments = stack->data() + base;
  const bool may_be_core = policy.kind == Accumulation::Kind::Machine && arguments[0].isTensor() && on_gpu(arguments[0].toTensor().device());
  if (!policy.own_kernels() && !may_be_core) return false;
  const std::string name = base_name(schema.name());
  const std::string& overload = schema.overload_name();
  const Sums how{*entry, policy};
  const Kernel core = may_be_core ? core_kernel(name, overload, how, arguments) : nullptr;
  if (!policy.own_kernels() && !core) return false;
  const bool in_place = schema.name().back() == '_';
  const bool other_dtype = overload.find("dtype") == 0 && name != "mean"; // products with out_dtype=
  TORCH_CHECK_NOT_IMPLEMENTED(
      !plan.has(fact::FusedProducts) && !other_dtype, schema.name(),
      ": expected the accumulation policy float32 or float64 for this fused operator, but got one that no stock kernel obeys. "
      "Call the ordinary operator, such as torch.convolution; for attention, torch.backends.mha.set_fastpath_enabled(False) turns the fused path "
      "off.");
  Stack results;
  if (name == "scaled_dot_product_attention") {
    results.emplace_back(typed<&accumulated::attention>(how, arguments, count));
  } else if (name == "convolution_backward") {
    if (!overload.empty()) return false;
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (const Tensor& t : typed<&convolution_backward>(how, arguments, count)) results.emplace_back(t);
  } else {
    auto found = dot_kernels().find(overload.empty() ? name : name + "." + overload);
    if (found == dot_kernels().end() && overload == "out") found = dot_kernels().find(name);
    if (found == dot_kernels().end()) return false; // named dimensions
    const Kernel kernel = core ? core : found->second;
    if (plan.has(fact::SumsInDtype)) {
      const c10::IValue& asked = arguments[count - 1 - (schema.is_mutable() && !in_place)]; // dtype=, before out
      if (arguments[0].toTensor().numel() == 0) return false; // stock knows what nothing adds up to
      if (asked.isInt() && !requested_format(static_cast<c10::ScalarType>(asked.toInt()), *entry)) return false;
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    Tensor result = kernel(how, arguments, count);
    if (schema.is_mutable()) {
      Tensor out = arguments[!in_place ? count - 1 : 0].toTensor();
      if (out.sizes() != result.sizes()) {
        TORCH_CHECK(!in_place, schema.name(), ": expected a tensor of size ", result.sizes(), ", but got ", out.sizes());
        at::_ops::resize_::call(out, c10::fromIntArrayRefSlow(result.sizes()), {});
      }
      at::_ops::copy_::call(out, result, false);
      result = out;
    }
    results.emplace_back(result);
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

} // namespace at::formats
