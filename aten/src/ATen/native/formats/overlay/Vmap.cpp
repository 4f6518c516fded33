#include <ATen/native/formats/overlay/Vmap.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/native/formats/overlay/BoxedCall.h>
#include <ATen/native/formats/overlay/OperandRules.h>
#include <ATen/ops/to_ops.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace at::formats {
namespace {

using torch::jit::Stack;

// A call as torch.func first sees it; the stock kernel there is one for all operators and hands it to the innermost transformation.
constexpr auto kFront = c10::DispatchKey::FuncTorchDynamicLayerFrontMode;

class FrontKernel : public c10::OperatorKernel {
 public:
  explicit FrontKernel(const c10::OperatorHandle& op) : plan_(op.schema()), stock_(op.getComputedKernelForDispatchKey(kFront)) {}

 protected:
  // Whether a tensor of ours is among the arguments, and one that vmap has wrapped, of ours or not.
  bool batched_beside_ours(const Stack& stack) const {
    bool ours = false, batched = false;
    const size_t base = stack.size() - plan_.arguments.size();
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        if (!t.defined()) return;
        ours |= entry_beneath(t) != nullptr;
        batched |= at::functorch::isBatchedTensor(t);
      });
    }
    return ours && batched;
  }

  Plan plan_;
  c10::SafeKernelFunction stock_;
};

// Operands are cast to the compute type and results back, by casts that are batched and differentiated in their turn.
class VmapByCasts final : public FrontKernel {
 public:
  using FrontKernel::FrontKernel;
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (!batched_beside_ours(*stack)) return stock_.callBoxed(op, keys, stack);
    if (plan_.rule == OperandRule::Normalisation && run_normalisation(op, plan_, stack, BoxedCall::Casts::Recorded)) return;
    if (!plan_.numbers.empty()) exchange_infinities(plan_.numbers, plan_.arguments.size(), stack);
    const BoxedCall call(plan_, stack, BoxedCall::Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }
};

// Dropout, for which torch.func has composite code of its own, with noise of the container's dtype; in all transformations.
class DropoutByCasts final : public FrontKernel {
 public:
  using FrontKernel::FrontKernel;
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (!entry_beneath((*stack)[stack->size() - plan_.arguments.size()].toTensor())) return stock_.callBoxed(op, keys, stack);
    const BoxedCall call(plan_, stack, BoxedCall::Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }
};

// The dispatcher warns of every kernel that replaces another; these do so on purpose and go on to what they replace.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Tensor.to and its like, which stock decomposes into code that compares dtypes by the container, vmap and functionalize do: the kernels for
// ours at once, which end in _to_copy.
class VmapTo final : public FrontKernel {
 public:
  explicit VmapTo(const c10::OperatorHandle& op) : FrontKernel(op), own_(op.getComputedKernelForDispatchKey(kFormatKey)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    (beside_ours(*stack) ? own_ : stock_).callBoxed(op, keys, stack);
  }

 private:
  bool beside_ours(const Stack& stack) const {
    bool ours = false;
    const size_t base = stack.size() - plan_.arguments.size();
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { ours |= entry_beneath(t) != nullptr; });
    }
    return ours;
  }

  c10::SafeKernelFunction own_;
};

// Operators on two tensors, element by element. The batching rule converts the operand without dimensions to the dtype that it takes for
// the result's, the container; so it is cast to the format here.
class VmapScalars final : public FrontKernel {
 public:
  // sibling: the same operator on a tensor and a number, where there is one. A number from Python stays exact there.
  VmapScalars(const c10::OperatorHandle& op, std::optional<c10::OperatorHandle> sibling) : FrontKernel(op), sibling_(std::move(sibling)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const size_t base = stack->size() - plan_.arguments.size();
    const at::Tensor a = (*stack)[base].toTensor(), b = (*stack)[base + 1].toTensor();
    if (a.defined() && b.defined() && batched_beside_ours(*stack) && (a.dim() == 0) != (b.dim() == 0)) {
      const size_t place = a.dim() == 0 ? base : base + 1;
      const at::Tensor& number = a.dim() == 0 ? a : b;
      const FormatEntry* entry = entry_beneath(a.dim() == 0 ? b : a);
      if (entry && number.unsafeGetTensorImpl()->is_wrapped_number() && !number.is_complex()) {
        if (sibling_ && place != base) {
          (*stack)[place] = number.item();
          return sibling_->callBoxed(stack);
        }
        const BoxedCall call(plan_, stack, BoxedCall::Casts::Recorded);
        op.callBoxed(stack);
        return call.finish(op.schema().returns().size(), stack);
      }
      if (entry && !entry_beneath(number) && !number.is_complex()) {
        const HiddenFromModes hidden;
        (*stack)[place] = at::_ops::to_dtype::call(number, c10::formats::scalar_type(*entry), false, false, {});
      }
    }
    stock_.callBoxed(op, keys, stack);
  }

 private:
  std::optional<c10::OperatorHandle> sibling_;
};

// where with a number, of which stock makes a tensor of the container's dtype.
class VmapWhere final : public FrontKernel {
 public:
  using FrontKernel::FrontKernel;
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (!batched_beside_ours(*stack)) return stock_.callBoxed(op, keys, stack);
    static const auto where = c10::Dispatcher::singleton().findSchemaOrThrow("aten::where", "self");
    c10::IValue &first = (*stack)[stack->size() - 2], &second = (*stack)[stack->size() - 1];
    c10::IValue& number = first.isTensor() ? second : first;
    const FormatEntry* entry = entry_beneath((first.isTensor() ? first : second).toTensor());
    if (!entry || number.isComplexDouble()) return stock_.callBoxed(op, keys, stack);
    number = encoded_number(number.toScalar(), *entry);
    where.callBoxed(stack);
  }
};

} // namespace

// mul.Scalar of mul.Tensor, pow.Tensor_Scalar of pow.Tensor_Tensor.
static std::optional<c10::OperatorHandle> sibling_of(const c10::OperatorHandle& op) {
  std::string overload = op.operator_name().overload_name;
  const size_t at = overload.rfind("Tensor");
  if (at == std::string::npos) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({op.operator_name().name, overload.replace(at, 6, "Scalar")});
}

void register_vmap_kernels(const std::set<std::string>& by_casts) {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kFront, __FILE__, __LINE__);
  // Composite, or with batching rules that make zeros, ones or statistics of the container's dtype.
  static const std::set<std::string> more = {
      "aten::batch_norm", "aten::instance_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::linalg_matrix_rank",
      "aten::native_dropout", "aten::isfinite", "aten::isreal", "aten::isclose",
  };
  static const std::set<std::string> casts = {"aten::to.dtype", "aten::to.device", "aten::to.dtype_layout", "aten::to.other", "aten::type_as"};
  static const std::set<std::string> pairs = {
      "aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::div.Tensor", "aten::rsub.Tensor", "aten::maximum", "aten::minimum",
      "aten::fmax", "aten::fmin", "aten::atan2", "aten::pow.Tensor_Tensor", "aten::fmod.Tensor", "aten::remainder.Tensor", "aten::hypot",
      "aten::eq.Tensor", "aten::ne.Tensor", "aten::lt.Tensor", "aten::le.Tensor", "aten::gt.Tensor", "aten::ge.Tensor",
  };
  auto& dispatcher = c10::Dispatcher::singleton();
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard silenced(&silence);
  for (const char* name : {"aten::dropout", "aten::alpha_dropout", "aten::feature_dropout", "aten::feature_alpha_dropout"}) {
    const auto op = dispatcher.findSchema({name, ""});
    if (op) library->impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<DropoutByCasts>(*op)));
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kFront)) continue;
    if (op->schema().is_mutable() && name.name != "aten::_native_batch_norm_legit") continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    const bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && by_casts.count(name.name) != 0;
    if (casts.count(full) != 0) {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<VmapTo>(*op)));
    } else if (pairs.count(full) != 0) {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<VmapScalars>(*op, sibling_of(*op))));
    } else if (full == "aten::where.ScalarSelf" || full == "aten::where.ScalarOther") {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<VmapWhere>(*op)));
    } else if (composite || more.count(name.name) != 0) {
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<VmapByCasts>(*op)));
    }
  }
}

} // namespace at::formats
