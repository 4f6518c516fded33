// A scripted attention layer is compiled from stock's text, not from what torch/torch_dtypes/_overlay/functions.py does in its place: bool masks are
// filled with -inf, float masks are left as they are, and where they are added to the scores (baddbmm) would decide the dtype.
// Reaches into: the text of torch.nn.functional._canonical_mask and multi_head_attention_forward, by the functions that a graph's inlined
// nodes come from. Where another release writes them in another way nothing is found, and masks are as the text makes them.
#include <torch/csrc/formats/ScriptMasks.h>

#include <ATen/FormatTensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/ScriptFormats.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/scope.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <cmath>

namespace torch::formats {
namespace {

using jit::Node;
using jit::Stack;

py::object implementation(const char* name) {
  return py::module_::import("torch_dtypes._stock_functions").attr(name);
}

py::object as_python(const at::Tensor& t) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(t));
}

// What masked places are filled with, in a mask of this tensor's dtype.
void push_mask_value(Stack& stack) {
  const at::Tensor like = jit::pop(stack).toTensor();
  double value = -HUGE_VAL;
  if (at::formats::is_format_tensor(like) || autocast_to_format()) {
    const py::gil_scoped_acquire gil;
    value = implementation("scripted_mask_value")(as_python(like)).cast<double>();
  }
  jit::push(stack, value);
}

// A stock floating mask that is added to scores of the query's dtype, as a mask of that dtype.
void push_mask(Stack& stack) {
  const at::Tensor query = jit::pop(stack).toTensor();
  c10::IValue mask = jit::pop(stack);
  if (mask.isTensor() && at::formats::is_format_tensor(query) && !at::formats::is_format_tensor(mask.toTensor()) &&
      mask.toTensor().is_floating_point()) {
    const py::gil_scoped_acquire gil;
    const py::object made =
        implementation("canonical_mask")(as_python(mask.toTensor()), "attn_mask", py::none(), "", as_python(query).attr("dtype"), false);
    mask = THPVariable_Unpack(made.ptr());
  } else if (mask.isTensor() && autocast_to_format()) {
    const py::gil_scoped_acquire gil;
    mask = THPVariable_Unpack(implementation("autocast_mask")(as_python(mask.toTensor())).ptr());
  }
  jit::push(stack, std::move(mask));
}

const jit::RegisterOperators mask_operators({
    jit::Operator("number_formats::mask_value(Tensor like) -> float", &push_mask_value, c10::AliasAnalysisKind::FROM_SCHEMA),
    jit::Operator("number_formats::mask(Tensor? mask, Tensor query) -> Tensor?", &push_mask, c10::AliasAnalysisKind::CONSERVATIVE),
});

// The function whose text a node comes from.
std::string written_in(const Node* node) {
  if (!node->callstack()) return "";
  jit::InlinedCallStackPtr innermost = *node->callstack();
  while (innermost->callee()) innermost = *innermost->callee();
  return innermost->function() ? innermost->function()->name() : innermost->function_name();
}

void replace_input(Node* node, size_t place, const char* op, at::ArrayRef<jit::Value*> inputs, const c10::TypePtr& type) {
  Node* made = node->owningGraph()->create(c10::Symbol::fromQualString(op), inputs);
  made->output()->setType(type);
  made->insertBefore(node);
  node->replaceInput(place, made->output());
}

} // namespace

void rewrite_mask(Node* node) {
  const c10::Symbol kind = node->kind();
  if (kind == c10::aten::masked_fill_ && written_in(node) == "_canonical_mask") {
    const auto value = jit::toIValue(node->input(2));
    if (value && value->isDouble() && value->toDouble() == -HUGE_VAL) {
      replace_input(node, 2, "number_formats::mask_value", {node->input(0)}, c10::FloatType::get());
    }
  } else if (kind == c10::aten::baddbmm && written_in(node) == "multi_head_attention_forward") {
    replace_input(node, 0, "number_formats::mask", {node->input(0), node->input(1)}, c10::TensorType::get());
  } else if (kind == c10::aten::scaled_dot_product_attention) {
    replace_input(node, 3, "number_formats::mask", {node->input(3), node->input(0)}, c10::OptionalType::ofTensor());
  } else if (kind == c10::aten::_transformer_encoder_layer_fwd || kind == c10::aten::_native_multi_head_attention) { // fused ones, for inference
    if (const auto place = node->schema().argumentIndexWithName("mask")) {
      replace_input(node, *place, "number_formats::mask", {node->input(*place), node->input(0)}, c10::OptionalType::ofTensor());
    }
  }
}

} // namespace torch::formats
