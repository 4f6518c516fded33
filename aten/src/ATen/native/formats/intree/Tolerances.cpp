// Default tolerances of ranks, pseudoinverses and least squares: those of the format, not of the
// compute dtype. Beside a stock wheel, hooks in front of Python's functions set them
// (torch/torch_dtypes/host/hooks/functions.py, which gives the reason).
#include <ATen/FormatLibrary.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

namespace at::formats {
namespace {

using torch::jit::Stack;

double relative_tolerance(const at::Tensor& a, const FormatEntry& entry) {
  const double rows = static_cast<double>(a.size(-2)), columns = static_cast<double>(a.size(-1));
  const double computed_in = entry.format.fits_float() ? 0x1p-23 : 0x1p-52;
  const double own = std::sqrt(std::min(rows, columns)) *
      c10::formats::finfo(c10::formats::scalar_type(entry), "epsilon");
  return std::min(std::max(own, std::max(rows, columns) * computed_in), 0.5);
}

// Fills in a tolerance that was not given. Argument 0 is the matrix.
void give_tolerance(const Plan& plan, bool in_tensors, Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  const at::Tensor& a = (*stack)[base].toTensor();
  const FormatEntry* entry = entry_beneath(a);
  if (!entry || a.dim() < 2) return;
  const double tolerance = relative_tolerance(a, *entry);
  const auto argument = [&](const char* name) -> c10::IValue* {
    for (size_t i = 0; i < plan.arguments.size(); ++i) {
      if (plan.arguments[i].name == name) return &(*stack)[base + i];
    }
    return nullptr;
  };
  c10::IValue *absolute = argument("atol"), *relative = argument("rtol"),
              *condition = argument("rcond"), *driver = argument("driver");
  if (relative && relative->isNone()) {
    if (absolute->isTensor()) {
      *relative = at::where(at::gt(absolute->toTensor(), 0), 0.0, tolerance);
    } else if (absolute->isNone() || absolute->toDouble() <= 0) {
      const auto options = at::TensorOptions().dtype(at::kDouble).device(a.device());
      *relative =
          in_tensors ? c10::IValue(at::scalar_tensor(tolerance, options)) : c10::IValue(tolerance);
    }
  }
  if (driver) {
    const bool right_hand_sides = (*stack)[base + 1].toTensor().numel() != 0;
    // The driver gelsy reads uninitialised memory.
    if (driver->isNone() && right_hand_sides) *driver = std::string("gelsd");
    if (condition->isNone() && (driver->isNone() || driver->toStringRef() != "gels"))
      *condition = tolerance;
  } else if (condition && condition->isDouble() && condition->toDouble() == 1e-15) {
    // pinverse's default
    *condition = tolerance;
  }
}

class TolerantKernel final : public c10::OperatorKernel {
 public:
  TolerantKernel(const c10::FunctionSchema& schema, Casts casts)
      : plan_(schema),
        casts_(casts),
        in_tensors_(schema.overload_name().find("tensor") != std::string::npos) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    const OutOfAutocast no_autocast;
    give_tolerance(plan_, in_tensors_, stack);
    const BoxedCall call(plan_, stack, casts_);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  Plan plan_;
  Casts casts_;
  bool in_tensors_; // whether tolerances are tensors
};

} // namespace

// Registers before register_boxed_kernels(), which handles operators without a kernel.
int register_tolerances();
int register_tolerances() {
  int registered = 0;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const bool rank = name.name == "aten::linalg_matrix_rank";
    if (!rank && name.name != "aten::linalg_pinv" && name.name != "aten::linalg_lstsq" &&
        name.name != "aten::pinverse")
      continue;
    const auto op = dispatcher.findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
    const auto kernel = [&](Casts casts) {
      return [&op, casts] {
        return torch::CppFunction::makeFromBoxedFunctor(
            std::make_unique<TolerantKernel>(op.schema(), casts));
      };
    };
    const bool writes = op.schema().is_mutable();
    register_below_autograd(name, kernel(Casts::Plain));
    if (!rank && !writes) {
      register_autograd(name, kernel(Casts::Recorded));
    } else if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      register_autograd(name, [] { return torch::CppFunction::makeFallthrough(); });
    }
    ++registered;
  }
  return registered;
}

} // namespace at::formats
