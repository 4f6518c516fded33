// Hides casts to a format dtype from Python: from a wrapper subclass's __torch_dispatch__ or a
// dispatch mode's. PyTorch looks up the dtype number in a table that ends before it, and reads
// beyond. Above and in autograd, this package's kernels keep such calls from Python. Without
// autograd (in torch.inference_mode, or from C++ beneath it) Python comes first.
#include <ATen/FormatTensor.h>
#include <ATen/StockKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace at::formats {
namespace {

using torch::jit::Stack;

constexpr auto kPython = c10::DispatchKey::Python;

class HiddenCast final : public c10::OperatorKernel {
 public:
  explicit HiddenCast(const c10::OperatorHandle& op) : stock_(stock_kernel(op, kPython)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (!asks_for_ours(op.schema(), *stack)) return stock_.callBoxed(op, keys, stack);
    const HiddenFromModes hidden;
    op.callBoxed(stack);
  }

 private:
  static bool asks_for_ours(const c10::FunctionSchema& schema, const Stack& stack) {
    const size_t count = schema.arguments().size(), base = stack.size() - count;
    for (size_t i = 1; i < count; ++i) {
      const c10::IValue& value = stack[base + i];
      if (value.isTensor()) return entry_beneath(value.toTensor()) != nullptr; // to(other)
      const std::string& name = schema.arguments()[i].name();
      if (name == "dtype")
        return value.isInt() &&
            c10::formats::is_format_type(static_cast<c10::ScalarType>(value.toInt()));
    }
    return false;
  }

  StockKernel stock_;
};

} // namespace

TORCH_LIBRARY_IMPL(aten, Python, m) {
  for (const char* name :
       {"_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as"}) {
    const std::string full = name;
    const size_t dot = full.find('.');
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("aten::" + full.substr(0, dot)).c_str(),
        dot == std::string::npos ? "" : full.substr(dot + 1).c_str());
    m.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<HiddenCast>(op)));
  }
}

} // namespace at::formats
