#include <ATen/native/formats/operators/facts/OperandRules.h>

#include <ATen/FormatLibrary.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/casts/AutocastCasts.h>
#include <ATen/native/formats/sums/Contractions.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/to_ops.h>

namespace at::formats {
namespace {

using torch::jit::Stack;

std::string dtype_name(const at::Tensor& t) {
  const FormatEntry* entry = entry_beneath(t);
  return "torch." + (entry ? entry->name : std::string(c10::getDtypeNames(t.scalar_type()).first));
}

bool is_stock_operand(const at::Tensor& t) {
  return t.defined() && !entry_beneath(t) && !t.unsafeGetTensorImpl()->is_wrapped_number();
}
bool is_floating_operand(const at::Tensor& t) {
  return is_stock_operand(t) &&
      (c10::isFloatingType(t.scalar_type()) || c10::isComplexType(t.scalar_type()));
}

class CheckedComposite final : public c10::OperatorKernel {
 public:
  explicit CheckedComposite(const c10::FunctionSchema& schema) : plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    const size_t base = stack->size() - plan_.arguments.size();
    if (plan_.rule == OperandRule::Normalisation &&
        run_normalisation(op, plan_, stack, Casts::Recorded))
      return;
    if (cast_to_block(plan_, *stack)) return op.callBoxed(stack);
    if (!plan_.has(fact::NumbersMultiply) ||
        ((*stack)[base].toTensor().dim() != 0 && (*stack)[base + 1].toTensor().dim() != 0))
      promote(*stack, base);
    if (plan_.takes(Step::Contraction) && run_contraction(plan_.name, stack)) return;
    const CompositeGuard stock_code;
    // The composite kernel is at a key that no tensor has.
    op.redispatchBoxed(c10::DispatchKeySet(), stack);
  }

 private:
  // Handles operands of several dtypes: casts them if they promote, else raises.
  void promote(Stack& stack, size_t base) const {
    const ResultType type = result_type(plan_, stack, base);
    if (!type.format || !type.stock_wins()) return;
    cast_operands(plan_, stack, base, *type.stock());
  }

  Plan plan_;
};

} // namespace

// x[mask] = t with one element is masked_fill with its number.
static bool fills_mask(const Plan& plan, const Plan::Argument& argument, const at::Tensor& t,
                       const Stack& stack, size_t base) {
  if (argument.name != "values" || !t.defined() || t.numel() != 1) return false;
  int masks = 0, others = 0;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    if (plan.arguments[i].name == "accumulate" && stack[base + i].toBool()) return false;
    if (!plan.arguments[i].where) continue;
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& index) {
      if (!index.defined()) return;
      const auto type = index.scalar_type();
      (type == c10::ScalarType::Bool || type == c10::ScalarType::Byte ? masks : others) += 1;
    });
  }
  return masks == 1 && others == 0;
}

// Whether an operand of an operator with OneDtype may have another dtype.
static bool is_free(const Plan& plan, const Plan::Argument& argument, const at::Tensor& t) {
  if (argument.where) return true;
  // complex and polar have a complex out; the stock kernel checks others.
  if (argument.name == "out" &&
      (plan.takes(Step::CastOut) || (t.defined() && c10::isComplexType(t.scalar_type()))))
    return true;
  // Results that normalisation keeps for its derivative are not rounded.
  const bool kept =
      plan.rule == OperandRule::Normalisation && argument.written && !argument.in_training;
  if (kept && argument.name != "out" && argument.name != "out0") return true;
  return argument.name == "weight" && plan.has(fact::WeightNumber) && t.defined() && t.dim() == 0;
}

// Raises for operands of several dtypes.
static void expect_one_dtype(const Plan& plan, const Stack& stack, size_t base) {
  // The first operand's dtype stays.
  const bool in_place = plan.arguments[0].written && stack[base].isTensor() &&
      is_stock_operand(stack[base].toTensor());
  std::string found, ours, other;
  const Plan::Argument* last = nullptr;
  bool other_kind = false; // not strided: refused below, whatever its dtype
  bool foreign = false;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const Plan::Argument& argument = plan.arguments[i];
    if (argument.numbers && (!ours.empty() || plan.has(fact::AnyWeight))) continue;
    each_tensor(argument.slot, stack[base + i], [&](const at::Tensor& t) {
      if (is_free(plan, argument, t) || fills_mask(plan, argument, t, stack, base)) return;
      const bool stock =
          plan.rule == OperandRule::FloatingOneDtype ? is_floating_operand(t) : is_stock_operand(t);
      // linalg.solve_ex writes pivots and success as integers. Statistics, and the operand of an
      // in-place operator, must not be integers.
      if (i > 0 && argument.written && stock && !is_floating_operand(t) &&
          plan.rule != OperandRule::Normalisation)
        return;
      other_kind |= stock && (t.layout() != c10::kStrided || t.is_nested());
      if (!t.defined() || !(stock || entry_beneath(t))) return;
      found += (found.empty() ? "" : ", ") + argument.name + " " + dtype_name(t);
      if (!stock) ours = dtype_name(t);
      foreign |= stock;
      if (stock == in_place) return;
      // A list is named once.
      if (last != &argument) other += (other.empty() ? "" : " and ") + argument.name;
      last = &argument;
    });
  }
  if (other_kind || !foreign || ours.empty()) return;
  if (in_place) ours = dtype_name(stack[base].toTensor());
  const char* exception = plan.rule == OperandRule::Normalisation
      ? " (or float32 parameters and statistics with an input of a number format)"
      : "";
  TORCH_CHECK(false, plan.name, ": expected operands of one dtype", exception, ", but got ", found,
              ". Convert ", other, " with .to(", ours, ").");
}

void expect_mask(const Plan& plan, const torch::jit::IValue& mask, const FormatEntry& entry) {
  if (!mask.isTensor() || !mask.toTensor().defined()) return;
  const at::Tensor& t = mask.toTensor();
  const FormatEntry* own = entry_beneath(t);
  const bool other = own
      ? own != &entry
      : t.scalar_type() == c10::ScalarType::BFloat16 || t.scalar_type() == c10::ScalarType::Half;
  TORCH_CHECK(!other, plan.name,
              ": expected attn_mask of bool, float32 or the query's dtype, torch.", entry.name,
              ", but got ", dtype_name(t), ". Convert it with .to(query.dtype).");
}

ResultType result_type(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  ResultType type;
  const bool internal = plan.has(fact::Internal);
  const bool keeps_first = plan.has(fact::KeepsFirst);
  const auto look = [&](bool numbers) {
    for (size_t i = 0; i < plan.arguments.size(); ++i) {
      if (plan.arguments[i].numbers != numbers) continue;
      each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        if (!internal || entry_beneath(t)) type.see(t, plan.name.c_str());
      });
    }
  };
  look(false);
  if (!type.format) look(true);
  if (plan.mask >= 0 && type.format) expect_mask(plan, stack[base + plan.mask], *type.format);
  if ((type.stock() || type.integers) && type.format && plan.rule != OperandRule::Any &&
      !(keeps_first && plan.rule == OperandRule::Normalisation) && !in_stock_formula())
    expect_one_dtype(plan, stack, base);
  if (keeps_first) {
    at::Tensor first;
    each_tensor(plan.arguments[0].slot, stack[base],
                [&](const at::Tensor& t) { first = first.defined() ? first : t; });
    if (first.defined()) type.keep(first);
  }
  return type;
}

bool takes_promoted(const Plan& plan, const at::Tensor& t, bool written, c10::ScalarType type) {
  if (!t.defined() || written || plan.rule == OperandRule::Any) return false;
  return !entry_beneath(t) && c10::isFloatingType(t.scalar_type()) && t.scalar_type() != type;
}

void cast_operands(const Plan& plan, Stack& stack, size_t base, c10::ScalarType type) {
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    map_tensors(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (!entry_beneath(t) && !takes_promoted(plan, t, plan.arguments[i].written, type)) return t;
      const ExplicitDtypeGuard explicit_dtype;
      return at::_ops::to_dtype::call(t, type, false, false, {});
    });
  }
}

bool cast_to_block(const Plan& plan, Stack& stack) {
  if (plan.rule == OperandRule::Any || !autocast_mixes()) return false;
  const size_t base = stack.size() - plan.arguments.size();
  std::optional<c10::Device> own;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (t.defined() && entry_beneath(t) && entry_beneath(t)->format.fits_float())
        own = t.device();
    });
  }
  if (!own) return false;
  const c10::ScalarType type = at::autocast::get_autocast_dtype(autocast_device(*own));
  if (c10::formats::is_format_type(type)) return false;
  bool meets = false;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    if (plan.arguments[i].written) return false;
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      meets |= is_stock_operand(t) && t.scalar_type() == type;
    });
  }
  if (meets) cast_operands(plan, stack, base, type);
  return meets;
}

bool run_normalisation(const c10::OperatorHandle& op, const Plan& plan, Stack* stack, Casts casts) {
  const size_t base = stack->size() - plan.arguments.size();
  const FormatEntry* entry = entry_beneath((*stack)[base].toTensor());
  if (!entry) return false;
  bool mixed = false, allowed = true;
  for (size_t i = 1; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
      if (!t.defined()) return;
      mixed |= is_floating_operand(t);
      allowed &= !entry_beneath(t) && t.scalar_type() == c10::ScalarType::Float;
    });
  }
  if (!mixed || !allowed) return false;
  const bool recorded = casts == Casts::Recorded;
  const auto cast = [&](const at::Tensor& t, c10::ScalarType type) {
    if (!recorded && is_format_tensor(t)) return to_stock(t, type);
    if (!recorded && c10::formats::is_format_type(type))
      return encoded(t, c10::formats::format_entry(type));
    const ExplicitDtypeGuard explicit_dtype;
    const HiddenFromModes hidden;
    return at::_ops::to_dtype::call(t, type, false, false, {});
  };
  // Widens float32 parameters for a format with compute type float64. Statistics are widened too,
  // and written back.
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> statistics;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    map_tensors(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
      if (!t.defined() || (i > 0 && entry->compute == c10::ScalarType::Float)) return t;
      const at::Tensor values = cast(t, entry->compute);
      if (plan.writes_to(i, *stack, base)) statistics.emplace_back(t, values);
      return values;
    });
  }
  const OutOfAutocast no_autocast;
  if (recorded) {
    op.callBoxed(stack);
  } else {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(stack);
  }
  for (const auto& [ours, values] : statistics)
    at::_ops::copy_::call(const_cast<at::Tensor&>(ours), values, false);
  const size_t first = stack->size() - op.schema().returns().size();
  for (size_t i = first; i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor() || !(*stack)[i].toTensor().defined()) continue;
    const at::Tensor result = (*stack)[i].toTensor();
    if (result.scalar_type() != entry->compute) continue;
    (*stack)[i] =
        cast(result, i == first ? c10::formats::scalar_type(*entry) : c10::ScalarType::Float);
  }
  return true;
}

void register_checked_composites() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten" ||
        !operator_facts(name.name, name.overload_name).route.has(Step::Checked))
      continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
        op->hasKernelForDispatchKey(kFormatKey))
      continue;
    const auto kernel = [&] {
      return torch::CppFunction::makeFromBoxedFunctor(
          std::make_unique<CheckedComposite>(op->schema()));
    };
    register_below_autograd(name, kernel);
    register_autograd(name, kernel);
  }
}

} // namespace at::formats
