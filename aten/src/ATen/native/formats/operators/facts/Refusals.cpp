// Operators that make no sense in a number format, and operands that cannot be used with a format
// tensor (sparse, nested, quantised). One error names the operator, the dtype and the way out;
// PyTorch's would speak of backends and devices.
#include <ATen/native/formats/operators/facts/Refusals.h>

#include <ATen/FormatLibrary.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/OperatorFacts.h>
#include <ATen/ops/type_as_compositeimplicitautograd_dispatch.h>

namespace at::formats {
namespace {

// The name of the format among an operator's arguments, including lists.
std::string format_among(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() && is_format_tensor(value.toTensor()))
      return entry_of(value.toTensor()).name;
    if (!value.isTensorList()) continue;
    for (const at::Tensor& t : value.toTensorVector()) {
      if (is_format_tensor(t)) return entry_of(t).name;
    }
  }
  return "a number format";
}

class Refusal final : public c10::OperatorKernel {
 public:
  explicit Refusal(std::string_view reason) : reason_(reason) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack) const {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().name(), ": expected a stock dtype, but got ",
                                format_among(op, *stack), ": ", reason_,
                                ". Convert first, for example with x.float().");
  }

 private:
  std::string_view reason_;
};

// Raises for a format operand with an operand of a kind that has no format. PyTorch joins the two
// into one dispatch key.
template <const char* const& Kind>
void refuse_operands(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  refuse_operand(op.schema().name(), format_among(op, *stack), Kind);
}

constexpr const char* kSparse = "sparse";
constexpr const char* kQuantised = "quantised";
constexpr const char* kNested = "nested";

torch::CppFunction refusal(std::string_view reason) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(reason));
}

// Stock code would read the container off `other`.
at::Tensor nested_type_as(const at::Tensor& self, const at::Tensor& other) {
  if (is_format_tensor(other)) refuse_operand("aten::type_as", entry_of(other).name, kNested);
  return at::compositeimplicitautograd::type_as(self, other);
}

// Encoders ask whether they may use nested tensors; with format tensors they may not.
bool is_left_aligned(const at::Tensor&, const at::Tensor&) {
  return false;
}

} // namespace

void refuse_operand(const std::string& op, const std::string& dtype, const char* kind) {
  C10_THROW_ERROR(
      NotImplementedError,
      c10::str(op, ": expected ordinary tensors together with one of ", dtype, ", but got a ", kind,
               " one. Convert one of the two first: the number format with x.float(), or the ",
               kind, " tensor to an ordinary one."));
}

// Also at the format autograd key, where a composite operator's stock code would run. Within
// wrappers of torch.func the result is the same.
void register_refusals() {
  static auto* autograd =
      new torch::Library(torch::Library::IMPL, "aten", kFormatAutogradKey, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten" || !dispatcher.findSchema(name)) continue;
    const OperatorFacts& row = operator_facts(name.name, name.overload_name);
    if (!row.route.has(Step::Refused)) continue;
    register_below_autograd(name, [&] { return refusal(row.detail); });
    autograd->impl(dispatch_name(name).c_str(), refusal(row.detail));
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("_nested_tensor_from_mask_left_aligned", &is_left_aligned);
}

TORCH_LIBRARY_IMPL(aten, AutogradNestedTensor, m) {
  m.impl("type_as", &nested_type_as);
}
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse2, m) { // in inference mode
  m.impl("type_as", &nested_type_as);
}

#define TD_REFUSED_OPERANDS(KEY, KIND)                                               \
  TORCH_LIBRARY_IMPL(_, KEY, m) {                                                    \
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_operands<KIND>>()); \
  }
TD_REFUSED_OPERANDS(SparsePrivateUse2, kSparse)
TD_REFUSED_OPERANDS(SparseCsrPrivateUse2, kSparse)
TD_REFUSED_OPERANDS(QuantizedPrivateUse2, kQuantised)
TD_REFUSED_OPERANDS(NestedTensorPrivateUse2, kNested)
#undef TD_REFUSED_OPERANDS

// The stock code of these runs before that fallback, and reads sizes that a nested tensor lacks.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse2, m) {
  for (const char* name :
       {"bilinear", "linear", "matmul", "matmul.out", "scaled_dot_product_attention"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_operands<kNested>>());
}

} // namespace at::formats
