#include <ATen/native/formats/operators/vmap/Vmap.h>

#include <ATen/Accumulation.h>
#include <ATen/FormatLibrary.h>
#include <ATen/StockKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/operators/boxed/Steps.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/operators/vmap/VmapSums.h>
#include <ATen/native/formats/sums/Contractions.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/to_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace at::formats {
namespace {

using torch::jit::Stack;

// The key at which torch.func first sees a call. One stock kernel there serves all operators and
// passes a call to the innermost transformation.
constexpr auto kFront = c10::DispatchKey::FuncTorchDynamicLayerFrontMode;

class FrontKernel : public c10::OperatorKernel {
 public:
  explicit FrontKernel(const c10::OperatorHandle& op)
      : plan_(op.schema()),
        stock_(stock_kernel(op, kFront)) {}
  virtual void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                          Stack* stack) const = 0;

 protected:
  // Whether the arguments have a format tensor, and a tensor of any dtype that vmap has wrapped.
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
  StockKernel stock_;
};

// Casts operands to the compute type and results back. The casts are batched and differentiated
// themselves.
class ByCastsUnderVmap : public FrontKernel {
 public:
  explicit ByCastsUnderVmap(const c10::OperatorHandle& op)
      : FrontKernel(op),
        steps_(compile_recorded_steps(plan_)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) const override {
    if (!batched_beside_ours(*stack)) return stock_.callBoxed(op, keys, stack);
    if (is_composed(plan_, *stack)) { // torch.func sees each of its operators first
      const CompositeGuard stock_code;
      return run_composed(op, stack);
    }
    if (run_steps(steps_, op, plan_, stack)) return;
    if (!plan_.numbers.empty()) exchange_numbers(plan_.numbers, plan_.arguments.size(), stack);
    const BoxedCall call(plan_, stack, Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  RunSteps steps_;
};

// addr under a policy with kernels of this package: the product of a column and a row, which has a
// rule under vmap.
class AddrUnderVmap final : public ByCastsUnderVmap {
 public:
  using ByCastsUnderVmap::ByCastsUnderVmap;
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) const override {
    const c10::IValue* arguments = &(*stack)[stack->size() - 5];
    const at::Tensor self = arguments[0].toTensor(), x = arguments[1].toTensor(),
                     y = arguments[2].toTensor();
    const bool vectors = batched_beside_ours(*stack) && x.dim() == 1 && y.dim() == 1;
    const FormatEntry* entry = vectors ? one_format({self, x, y}) : nullptr;
    if (!entry || !accumulation_of(*entry).own_kernels())
      return ByCastsUnderVmap::operator()(op, keys, stack);
    const at::Tensor column = at::_ops::unsqueeze::call(x, 1),
                     row = at::_ops::unsqueeze::call(y, 0);
    const at::Tensor made =
        at::_ops::addmm::call(self, column, row, arguments[3].toScalar(), arguments[4].toScalar());
    torch::jit::drop(*stack, 5);
    stack->emplace_back(made);
  }
};

// Dropout, in all transformations. torch.func has composite code for it, with noise of the
// container's dtype.
class DropoutByCasts final : public FrontKernel {
 public:
  using FrontKernel::FrontKernel;
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) const override {
    if (!entry_beneath((*stack)[stack->size() - plan_.arguments.size()].toTensor()))
      return stock_.callBoxed(op, keys, stack);
    const BoxedCall call(plan_, stack, Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }
};

// The dispatcher warns of every kernel that replaces another. These replace kernels on purpose, and
// pass calls on to them.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Tensor.to and its kin. vmap and functionalize decompose them into stock code that compares dtypes
// by the container; this package's kernels run first, and end in _to_copy.
class ToUnderVmap final : public FrontKernel {
 public:
  explicit ToUnderVmap(const c10::OperatorHandle& op)
      : FrontKernel(op),
        own_(stock_kernel(op, kFormatKey)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) const override {
    (beside_ours(*stack) ? own_ : stock_).callBoxed(op, keys, stack);
  }

 private:
  bool beside_ours(const Stack& stack) const {
    bool ours = false;
    const size_t base = stack.size() - plan_.arguments.size();
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, stack[base + i],
                  [&](const at::Tensor& t) { ours |= entry_beneath(t) != nullptr; });
    }
    return ours;
  }

  StockKernel own_;
};

// Elementwise operators on two tensors, one of them stock. The batching rule converts an operand
// without dimensions in a sample to the container, which it takes for the result's dtype. So format
// values take part as float64 numbers, which keeps integers and stock numbers exact, and results
// are rounded once afterwards.
class PairsUnderVmap final : public FrontKernel {
 public:
  // sibling: the same operator on a tensor and a number, if there is one. It keeps a number from
  // Python exact.
  PairsUnderVmap(const c10::OperatorHandle& op, std::optional<c10::OperatorHandle> sibling)
      : FrontKernel(op),
        sibling_(std::move(sibling)) {
    plan_.facts = plan_.facts | fact::InFloat64;
  }
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) const override {
    const size_t base = stack->size() - plan_.arguments.size();
    const at::Tensor a = (*stack)[base].toTensor(), b = (*stack)[base + 1].toTensor();
    const bool alike = (entry_beneath(a) != nullptr) == (entry_beneath(b) != nullptr);
    if (alike || !a.defined() || !b.defined() || !batched_beside_ours(*stack))
      return stock_.callBoxed(op, keys, stack);
    if (sibling_ && b.unsafeGetTensorImpl()->is_wrapped_number() && !b.is_complex()) {
      (*stack)[base + 1] = b.item();
      return sibling_->callBoxed(stack);
    }
    const BoxedCall call(plan_, stack, Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  std::optional<c10::OperatorHandle> sibling_;
};

// where with a number, which stock code turns into a tensor of the container's dtype.
class WhereUnderVmap final : public FrontKernel {
 public:
  using FrontKernel::FrontKernel;
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  Stack* stack) const override {
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

constexpr auto kMode = c10::DispatchKey::FuncTorchVmapMode;

// The same random numbers for each example. Stock code draws them into a tensor of the container's
// dtype, and copies it.
class FillUnderVmap : public c10::OperatorKernel {
 public:
  explicit FillUnderVmap(const c10::OperatorHandle& op) : stock_(stock_kernel(op, kMode)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const size_t count = op.schema().arguments().size(), base = stack->size() - count;
    const at::Tensor self = (*stack)[base].toTensor();
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    const auto* entry = entry_beneath(self);
    const auto batched = [&](const c10::IValue& value) {
      return value.isTensor() &&
          std::get<1>(at::functorch::unwrapTensorAtLevel(value.toTensor(), layer->layerId()))
              .has_value();
    };
    const bool same = entry && layer &&
        layer->randomness() == at::functorch::RandomnessType::Same && batched(self);
    if (!same || std::any_of(stack->begin() + base + 1, stack->end(), batched))
      return stock_.callBoxed(op, keys, stack);
    const c10::impl::ExcludeDispatchKeyGuard within(kMode);
    (*stack)[base] = empty_format(self.sizes(), *entry, self.device());
    op.callBoxed(stack);
    self.copy_(stack->back().toTensor());
    stack->back() = self;
  }

 private:
  StockKernel stock_;
};

constexpr std::string_view kFills[] = {
    "aten::random_",      "aten::normal_",    "aten::bernoulli_",  "aten::cauchy_",
    "aten::exponential_", "aten::geometric_", "aten::log_normal_", "aten::uniform_"};

} // namespace

// mul.Scalar for mul.Tensor, pow.Tensor_Scalar for pow.Tensor_Tensor.
static std::optional<c10::OperatorHandle> sibling_of(const c10::OperatorHandle& op) {
  std::string overload = op.operator_name().overload_name;
  const size_t at = overload.rfind("Tensor");
  if (at == std::string::npos) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema(
      {op.operator_name().name, overload.replace(at, 6, "Scalar")});
}

static std::unique_ptr<FrontKernel> front_kernel(const c10::OperatorHandle& op) {
  const auto& [base, overload] = op.operator_name();
  const fact::Set facts = operator_facts(base, overload).facts;
  if (facts.has_any(fact::VmapDropout)) return std::make_unique<DropoutByCasts>(op);
  if (op.hasKernelForDispatchKey(kFront)) return nullptr;
  if (base == "aten::addr") return std::make_unique<AddrUnderVmap>(op);
  if (facts.has_any(fact::VmapTo)) return std::make_unique<ToUnderVmap>(op);
  if (facts.has_any(fact::VmapWhere)) return std::make_unique<WhereUnderVmap>(op);
  const bool pair = overload.empty() || overload == "Tensor" || overload == "Tensor_Tensor" ||
      overload == "Tensor_mode";
  if (facts.has_any(fact::VmapPairs) && pair)
    return std::make_unique<PairsUnderVmap>(op, sibling_of(op));
  const bool composite = facts.has_any(fact::ByCasts) &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  return facts.has_any(fact::VmapByCasts) || composite ? std::make_unique<ByCastsUnderVmap>(op)
                                                       : nullptr;
}

// Excludes batch normalisation, though it writes its statistics.
static bool is_in_place_or_out(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return schema.is_mutable() &&
      (schema.name().back() == '_' ||
       std::any_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.is_out(); }));
}

void register_vmap_kernels() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", kFront, __FILE__, __LINE__);
  static auto* fills = new torch::Library(torch::Library::IMPL, "aten", kMode, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard silenced(&silence);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (op && op->hasKernelForDispatchKey(kMode) &&
        std::find(std::begin(kFills), std::end(kFills), name.name) != std::end(kFills)) {
      fills->impl(dispatch_name(name).c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<FillUnderVmap>(*op)));
    }
    if (!op || is_in_place_or_out(op->schema())) continue;
    if (auto kernel = front_kernel(*op))
      library->impl(dispatch_name(name).c_str(),
                    torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
  static auto* rules = new torch::Library(torch::Library::IMPL, "aten",
                                          c10::DispatchKey::FuncTorchBatched, __FILE__, __LINE__);
  register_batched_sums(*library, *rules);
}

} // namespace at::formats
