#include <ATen/native/formats/operators/boxed/DotOperators.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/sums/Accumulate.h>
#include <ATen/native/formats/sums/TensorCores.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/resize_ops.h>

#include <algorithm>
#include <array>
#include <optional>
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

// ---- from a schema's arguments to a function's: by position, each in the function's type ----

using Results = c10::SmallVector<Tensor, 3>;

Results as_results(Tensor result) {
  return {std::move(result)};
}
Results as_results(const std::array<Tensor, 3>& results) {
  return Results(results.begin(), results.end());
}

template <typename Result, typename... Types, size_t... Places>
Results call_typed(Result (*function)(const Sums&, Types...), const Sums& sums,
                   const IValue* arguments, std::index_sequence<Places...>) {
  return as_results(function(sums, arguments[Places].to<std::decay_t<Types>>()...));
}

template <typename Result, typename... Types>
Results call_typed(Result (*function)(const Sums&, Types...), const Sums& sums,
                   const IValue* arguments, size_t count) {
  // further arguments: out, or some that no policy reads
  TORCH_INTERNAL_ASSERT(sizeof...(Types) <= count);
  return call_typed(function, sums, arguments, std::index_sequence_for<Types...>());
}

template <auto function>
Results typed(const Sums& sums, const IValue* arguments, size_t count) {
  return call_typed(function, sums, arguments, count);
}

// ---- functions that adapt arguments from their schemas to Accumulate.h ----

template <Divided divided>
Tensor reduce_all(const Sums& sums, const Tensor& self, Dtype dtype) {
  return accumulated::reduce_all(sums, self, dtype, divided);
}
template <Divided divided>
Tensor reduce_dims(const Sums& sums, const Tensor& self, const std::optional<Integers>& dims,
                   bool keep, Dtype dtype) {
  return accumulated::reduce_dims(
      sums, self, dims ? c10::OptionalArrayRef<int64_t>(*dims) : c10::OptionalArrayRef<int64_t>(),
      keep, dtype, divided);
}

Convolution convolution_of(const Integers& stride, const Integers& padding,
                           const Integers& dilation, bool transposed,
                           const Integers& output_padding, int64_t groups) {
  const auto list = [](const Integers& v) {
    return c10::SmallVector<int64_t, 3>(v.begin(), v.end());
  };
  return {list(stride), list(padding), list(dilation), list(output_padding), transposed, groups};
}
Tensor convolution(const Sums& sums, const Tensor& x, const Tensor& w,
                   const std::optional<Tensor>& bias, const Integers& stride,
                   const Integers& padding, const Integers& dilation, bool transposed,
                   const Integers& output_padding, int64_t groups) {
  return accumulated::convolution(
      sums, x, w, bias.value_or(Tensor()),
      convolution_of(stride, padding, dilation, transposed, output_padding, groups));
}
// Permutes from the order time, batch, channel.
Tensor conv_tbc(const Sums& sums, const Tensor& x, const Tensor& w, const Tensor& bias,
                int64_t padding) {
  const Convolution conv = convolution_of({1}, {padding}, {1}, false, {0}, 1);
  return accumulated::convolution(sums, x.permute({1, 2, 0}), w.permute({2, 1, 0}), bias, conv)
      .permute({2, 0, 1})
      .contiguous();
}
std::array<Tensor, 3> convolution_backward(const Sums& sums, const Tensor& grad, const Tensor& x,
                                           const Tensor& w,
                                           const std::optional<Integers>& /*bias_sizes*/,
                                           const Integers& stride, const Integers& padding,
                                           const Integers& dilation, bool transposed,
                                           const Integers& output_padding, int64_t groups,
                                           const std::array<bool, 3>& wanted) {
  const Convolution conv =
      convolution_of(stride, padding, dilation, transposed, output_padding, groups);
  return accumulated::convolution_backward(sums, grad, x, w, conv, wanted);
}

// Whether a schema names dimensions, which are text.
bool takes_names(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& a) {
                       c10::TypePtr type = a.type();
                       if (const auto* optional = type->castRaw<c10::OptionalType>())
                         type = optional->getElementType();
                       if (const auto* list = type->castRaw<c10::ListType>())
                         type = list->getElementType();
                       return type->kind() == c10::TypeKind::StringType;
                     });
}

} // namespace

// ---- the kernels named by rows ----

namespace products {
const ProductKernels addbmm{&typed<&accumulated::addbmm>};
const ProductKernels addmm{.kernel = &typed<&accumulated::addmm>,
                           .on_cores = &typed<&tensor_cores::added>,
                           .factors = 1,
                           .factor_dims = 2};
const ProductKernels addmv{&typed<&accumulated::addmv>};
const ProductKernels addr{&typed<&accumulated::addr>};
const ProductKernels attention{.kernel = &typed<&accumulated::attention>, .differentiable = true};
const ProductKernels baddbmm{.kernel = &typed<&accumulated::baddbmm>,
                             .on_cores = &typed<&tensor_cores::added>,
                             .factors = 1,
                             .factor_dims = 3};
const ProductKernels bmm{.kernel = &typed<&accumulated::bmm>,
                         .on_cores = &typed<&tensor_cores::product>,
                         .factor_dims = 3};
const ProductKernels conv_tbc{&typed<&at::formats::conv_tbc>};
const ProductKernels convolution{&typed<&at::formats::convolution>};
const ProductKernels convolution_backward{&typed<&at::formats::convolution_backward>};
const ProductKernels cumsum{&typed<&accumulated::cumsum>};
const ProductKernels dot{&typed<&accumulated::dot>};
const ProductKernels mean{&typed<&reduce_all<Divided::ByCount>>,
                          &typed<&reduce_dims<Divided::ByCount>>};
const ProductKernels mm{.kernel = &typed<&accumulated::mm>,
                        .on_cores = &typed<&tensor_cores::product>,
                        .factor_dims = 2};
const ProductKernels mv{&typed<&accumulated::mv>};
const ProductKernels sum{&typed<&reduce_all<Divided::ByOne>>, &typed<&reduce_dims<Divided::ByOne>>};
} // namespace products

ProductKernel select_kernel(const ProductKernels& products, const c10::FunctionSchema& schema) {
  const bool several_out = schema.is_mutable() && schema.returns().size() > 1;
  if (several_out || takes_names(schema) || schema.argumentIndexWithName("out_dtype"))
    return nullptr;
  return products.along_dims && schema.argumentIndexWithName("dim") ? products.along_dims
                                                                    : products.kernel;
}

// ---- the steps ----

// The one format of all operands but a mask; nullptr if there are several, or a stock dtype.
static const FormatEntry* format_of_operands(const Plan& plan, const Stack& stack, size_t base) {
  const FormatEntry* entry = nullptr;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const IValue& v = stack[base + i];
    if (!v.isTensor() || !v.toTensor().defined() || static_cast<int>(i) == plan.mask) continue;
    // Attention may come in torch.func's wrappers.
    const FormatEntry* own = entry_beneath(v.toTensor());
    // Offsets of groups are integers.
    if (!own && plan.takes(Step::RefusePolicy) && !c10::isFloatingType(v.toTensor().scalar_type()))
      continue;
    if (!own || (entry && entry != own)) return nullptr;
    entry = own;
  }
  if (entry && plan.mask >= 0) expect_mask(plan, stack[base + plan.mask], *entry);
  return entry;
}

// Replaces the arguments by the results. If the operator writes, copies them into the tensor that
// it writes to.
static bool finish(const Plan& plan, Stack* stack, size_t base, Results results) {
  if (plan.writes) {
    const bool in_place = plan.arguments[0].written;
    const Tensor out = (*stack)[in_place ? base : stack->size() - 1].toTensor();
    Tensor& result = results[0];
    if (out.sizes() != result.sizes()) {
      TORCH_CHECK(!in_place, plan.name, ": expected a tensor of size ", result.sizes(),
                  ", but got ", out.sizes());
      at::_ops::resize_::call(out, c10::fromIntArrayRefSlow(result.sizes()), {});
    }
    at::_ops::copy_::call(const_cast<Tensor&>(out), result, false);
    result = out;
  }
  torch::jit::drop(*stack, plan.arguments.size());
  for (Tensor& result : results) stack->emplace_back(std::move(result));
  return true;
}

bool run_policy_products(const c10::OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  const size_t count = plan.arguments.size(), base = stack->size() - count;
  const FormatEntry* entry = format_of_operands(plan, *stack, base);
  if (!entry) return false;
  const Accumulation policy = accumulation_of(*entry);
  if (!policy.own_kernels()) return false;
  const IValue* arguments = stack->data() + base;
  if (plan.has(fact::SumsInDtype)) {
    // dtype= is the last argument before out.
    const IValue& asked = arguments[count - 1 - (plan.writes && !plan.arguments[0].written)];
    if (arguments[0].toTensor().numel() == 0) return false; // the stock kernel knows an empty sum
    if (asked.isInt() && !requested_format(static_cast<c10::ScalarType>(asked.toInt()), *entry))
      return false;
  }
  std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
  if (!plan.products->differentiable) guard.emplace();
  return finish(plan, stack, base, plan.product({*entry, policy}, arguments, count));
}

bool refuse_policy(const c10::OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  const FormatEntry* entry =
      format_of_operands(plan, *stack, stack->size() - plan.arguments.size());
  TORCH_CHECK_NOT_IMPLEMENTED(
      !entry || !accumulation_of(*entry).own_kernels(), plan.name,
      ": expected the accumulation policy float32 or float64 for this fused operator, but got one "
      "that no stock kernel obeys. "
      "Call the ordinary operator, such as torch.convolution; for attention, "
      "torch.backends.mha.set_fastpath_enabled(False) turns the fused path "
      "off.");
  return false;
}

bool run_on_tensor_cores(const c10::OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  const IValue* arguments = stack->data() + base;
  if (!on_gpu(arguments[0].toTensor().device())) return false;
  const FormatEntry* entry = format_of_operands(plan, *stack, base);
  if (!entry) return false;
  const Accumulation policy = accumulation_of(*entry);
  if (policy.kind != Accumulation::Kind::Machine) return false;
  const Sums sums{*entry, policy};
  const ProductKernels& p = *plan.products;
  if (!tensor_cores::serve(sums, arguments[p.factors].toTensor(),
                           arguments[p.factors + 1].toTensor(), p.factor_dims))
    return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  return finish(plan, stack, base, p.on_cores(sums, arguments, plan.arguments.size()));
}

} // namespace at::formats
