#include <torch/csrc/formats/scripts/ScriptFormats.h>

#include <ATen/FormatTensor.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <set>

namespace torch::formats {
namespace {

using c10::IValue;
using jit::Graph;
using jit::Node;

constexpr int kMaxNesting = 64; // of values: an object may contain itself

bool holds_format_at(const IValue& value, int depth) {
  const auto any = [depth](const auto& values) {
    for (const IValue& held : values) {
      if (holds_format_at(held, depth + 1)) return true;
    }
    return false;
  };
  if (value.isTensor()) return at::formats::is_format_tensor(value.toTensor());
  if (depth == kMaxNesting) return false;
  if (value.isObject()) return any(value.toObjectRef().slots());
  if (value.isTensorList() || value.isList()) return any(value.toListRef());
  if (value.isTuple()) return any(value.toTupleRef().elements());
  if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) {
      if (holds_format_at(item.value(), depth + 1)) return true;
    }
  }
  return false;
}

// Returns whether a value is the number of a format dtype.
bool is_format_number(const std::optional<IValue>& value) {
  if (!value || !value->isInt()) return false;
  const c10::formats::FormatEntry* entry = c10::formats::find_dtype_number(value->toInt());
  if (entry) c10::formats::keep_number(*entry); // the graph uses it
  return entry != nullptr;
}

// Returns the place of a node's dtype argument, or -1.
int place_of_dtype(const Node* node) {
  const c10::FunctionSchema* schema = node->kind().is_aten() ? node->maybeSchema() : nullptr;
  return schema ? schema->argumentIndexWithName("dtype").value_or(-1) : -1;
}

bool names_format_in(const jit::Block* block, std::set<const Graph*>& seen);

bool names_format_in(const Graph& graph, std::set<const Graph*>& seen) {
  return seen.insert(&graph).second && names_format_in(graph.block(), seen);
}

bool names_format_in(const jit::Function* callee, std::set<const Graph*>& seen) {
  const auto* function = dynamic_cast<const jit::GraphFunction*>(callee);
  return function && names_format_in(*function->graph(), seen);
}

bool names_format_in(const jit::Block* block, std::set<const Graph*>& seen) {
  for (const Node* node : block->nodes()) {
    for (const jit::Block* inner : node->blocks()) {
      if (names_format_in(inner, seen)) return true;
    }
    if (node->kind() == c10::prim::Constant) {
      const auto value = jit::toIValue(node->output());
      if (value && !value->isInt() && holds_format_at(*value, 0)) return true;
    } else if (node->kind() == c10::prim::CallFunction) {
      const auto type = node->input(0)->type()->cast<c10::FunctionType>();
      if (type && names_format_in(type->function(), seen)) return true;
    } else if (node->kind() == c10::prim::CallMethod) {
      const auto type = node->input(0)->type()->cast<c10::ClassType>();
      if (type && names_format_in(type->findMethod(node->s(c10::attr::name)), seen)) return true;
    } else if (const int place = place_of_dtype(node);
               place >= 0 && is_format_number(jit::toIValue(node->input(place)))) {
      return true;
    }
  }
  return false;
}

} // namespace

bool holds_format(const IValue& value) {
  return holds_format_at(value, 0);
}

bool names_format(const Graph& graph) {
  std::set<const Graph*> seen;
  return names_format_in(graph, seen);
}

bool autocast_to_format() {
  const auto casts = [](c10::DeviceType device) {
    return at::autocast::is_autocast_enabled(device) &&
        c10::formats::is_format_type(at::autocast::get_autocast_dtype(device));
  };
  return casts(at::kCPU) || casts(at::kCUDA);
}

} // namespace torch::formats
