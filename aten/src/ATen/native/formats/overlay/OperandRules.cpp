#include <ATen/native/formats/overlay/OperandRules.h>

#include <ATen/MixedOperands.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/Contractions.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/to_ops.h>
#include <torch/library.h>

#include <set>

namespace at::formats {
namespace {

using torch::jit::Stack;

const std::set<std::string>& of_one_dtype() {
  static const std::set<std::string> names = {
      // products
      "linear", "matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "tensordot", "addmm", "_addmm_activation", "addmv", "baddbmm", "addbmm",
      "bilinear", "_trilinear", "linalg_multi_dot", "chain_matmul", "linalg_matmul", "linalg_vecdot", "linalg_cross", "linalg_solve",
      "linalg_solve_ex", "_linalg_solve_ex",
      // convolutions
      "convolution", "_convolution", "convolution_overrideable", "_convolution_mode", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
      "conv_transpose2d", "conv_transpose3d", "conv_tbc", "thnn_conv2d", "_slow_conv2d_forward", "slow_conv3d", "slow_conv3d_forward",
      "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d",
      // layers
      "scaled_dot_product_attention", "_scaled_dot_product_attention_math", "prelu", "_prelu_kernel", "grid_sampler", "grid_sampler_2d",
      "grid_sampler_3d",
  };
  return names;
}

const std::set<std::string>& of_one_floating_dtype() {
  static const std::set<std::string> names = {
      "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",
  };
  return names;
}

const std::set<std::string>& normalisations() {
  static const std::set<std::string> names = {
      "batch_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
      "_batch_norm_with_update", "_batch_norm_no_update", "native_layer_norm", "native_group_norm", "rms_norm",
  };
  return names;
}

// Composite, and what they compare is the container.
const std::set<std::string>& checked() {
  static const std::set<std::string> names = {
      "inner", "tensordot", "bilinear", "linalg_multi_dot", "chain_matmul", "linalg_vecdot", "linalg_solve", "linalg_solve_ex", "conv1d", "conv2d",
      "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "prelu", "grid_sampler", "instance_norm",
  };
  return names;
}

std::string dtype_name(const at::Tensor& t) {
  const FormatEntry* entry = entry_beneath(t);
  return "torch." + (entry ? entry->name : std::string(c10::getDtypeNames(t.scalar_type()).first));
}

bool is_stock_operand(const at::Tensor& t) {
  return t.defined() && !entry_beneath(t) && !t.unsafeGetTensorImpl()->is_wrapped_number();
}
bool is_floating_operand(const at::Tensor& t) {
  return is_stock_operand(t) && (c10::isFloatingType(t.scalar_type()) || c10::isComplexType(t.scalar_type()));
}

class CheckedComposite final : public c10::OperatorKernel {
 public:
  explicit CheckedComposite(const c10::FunctionSchema& schema) : plan_(schema), numbers_multiply_(plan_.name == "aten::inner") {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    const size_t base = stack->size() - plan_.arguments.size();
    if (plan_.rule == OperandRule::Normalisation && run_normalisation(op, plan_, stack, BoxedCall::Casts::Recorded)) return;
    if (!numbers_multiply_ || ((*stack)[base].toTensor().dim() != 0 && (*stack)[base + 1].toTensor().dim() != 0)) promote(*stack, base);
    if (run_contraction(plan_.name, stack)) return;
    op.redispatchBoxed(c10::DispatchKeySet(), stack); // the composite kernel is at the key that no tensor has
  }

 private:
  // Raises where dtypes are several, unless they promote: then by casts.
  void promote(Stack& stack, size_t base) const {
    const ResultType type = ResultType::of(plan_, stack, base);
    if (!type.format || !type.stock_wins()) return;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      map_tensors(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        if (!entry_beneath(t)) return t;
        const ExplicitDtypeGuard exact;
        return at::_ops::to_dtype::call(t, *type.stock, false, false, {});
      });
    }
  }

  Plan plan_;
  bool numbers_multiply_; // by elements, whatever their dtype
};

} // namespace

OperandRule operand_rule(const std::string& op) {
  const std::string name = base_name(op);
  if (of_one_floating_dtype().count(name) != 0) return OperandRule::FloatingOneDtype;
  return of_one_dtype().count(name) != 0 ? OperandRule::OneDtype : normalisations().count(name) != 0 ? OperandRule::Normalisation : OperandRule::Any;
}

void expect_one_dtype(const Plan& plan, const Stack& stack, size_t base) {
  const bool promote = mixed_operands() == MixedOperands::Promote;
  std::string found, ours, other;
  bool other_kind = false; // than strided: refused below, whatever its dtype
  bool integers = false;   // which promote in no layer
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const Plan::Argument& argument = plan.arguments[i];
    if (argument.numbers && !ours.empty()) continue;
    each_tensor(argument.slot, stack[base + i], [&](const at::Tensor& t) {
      const bool stock = plan.rule == OperandRule::FloatingOneDtype ? is_floating_operand(t) : is_stock_operand(t);
      // Pivots and success of linalg.solve_ex are written as integers; statistics are not.
      if (argument.written && stock && !is_floating_operand(t) && plan.rule != OperandRule::Normalisation) return;
      integers |= stock && !is_floating_operand(t);
      other_kind |= stock && (t.layout() != c10::kStrided || t.is_nested());
      if (!t.defined() || !(stock || entry_beneath(t))) return;
      found += (found.empty() ? "" : ", ") + argument.name + " " + dtype_name(t);
      (stock ? other : ours) = stock ? argument.name : dtype_name(t);
    });
  }
  if (other_kind || other.empty() || (promote && !integers)) return;
  const char* exception = plan.rule == OperandRule::Normalisation ? " (or float32 parameters and statistics beside an input of a number format)" : "";
  TORCH_CHECK(false, plan.name, ": expected operands of one dtype", exception, ", but got ", found, ". Convert ", other, " with .to(", ours,
              integers ? ")." : "), or let types promote in a block: with torch_dtypes.mixed_operands(\"promote\").");
}

bool run_normalisation(const c10::OperatorHandle& op, const Plan& plan, Stack* stack, BoxedCall::Casts casts) {
  const size_t base = stack->size() - plan.arguments.size();
  const FormatEntry* entry = entry_beneath((*stack)[base].toTensor());
  if (!entry || mixed_operands() == MixedOperands::Promote) return false;
  bool mixed = false, allowed = true;
  for (size_t i = 1; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
      if (!t.defined()) return;
      mixed |= is_floating_operand(t);
      allowed &= !entry_beneath(t) && t.scalar_type() == c10::ScalarType::Float;
    });
  }
  if (!mixed || !allowed) return false;
  const bool recorded = casts == BoxedCall::Casts::Recorded;
  const auto cast = [&](const at::Tensor& t, c10::ScalarType type) {
    if (!recorded && is_format_tensor(t)) return to_stock(t, type);
    if (!recorded && c10::formats::is_format_type(type)) return encoded(t, c10::formats::format_entry(type));
    const ExplicitDtypeGuard exact;
    const HiddenFromModes hidden;
    return at::_ops::to_dtype::call(t, type, false, false, {});
  };
  // Parameters of float32 for a format that is computed in float64 are widened, statistics among them and brought back.
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> statistics;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    map_tensors(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
      if (!t.defined() || (i > 0 && entry->compute == c10::ScalarType::Float)) return t;
      const at::Tensor values = cast(t, entry->compute);
      if (plan.arguments[i].written) statistics.emplace_back(t, values);
      return values;
    });
  }
  const OutOfAutocast exact;
  if (recorded) {
    op.callBoxed(stack);
  } else {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(stack);
  }
  for (const auto& [ours, values] : statistics) at::_ops::copy_::call(const_cast<at::Tensor&>(ours), values, false);
  const size_t first = stack->size() - op.schema().returns().size();
  for (size_t i = first; i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor() || !(*stack)[i].toTensor().defined()) continue;
    const at::Tensor result = (*stack)[i].toTensor();
    if (result.scalar_type() != entry->compute) continue;
    (*stack)[i] = cast(result, i == first ? c10::formats::scalar_type(*entry) : c10::ScalarType::Float);
  }
  return true;
}

void register_checked_composites() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kFormatKey, __FILE__, __LINE__);
  static auto* autograd = new torch::Library(torch::Library::IMPL, "aten", kFormatAutogradKey, __FILE__, __LINE__);
  static auto* wrapped = new torch::Library(torch::Library::IMPL, "aten", kWrappedAutogradKey, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten" || checked().count(base_name(name.name)) == 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) || op->hasKernelForDispatchKey(kFormatKey)) continue;
    for (torch::Library* at : {library, autograd, wrapped}) {
      at->impl(c10::toString(name).substr(6).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CheckedComposite>(op->schema())));
    }
  }
}

} // namespace at::formats
