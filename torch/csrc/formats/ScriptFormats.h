// Whether a script works on number formats: by what it is called with, and by what its graph names.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>

namespace torch::formats {

// Whether a value is a dtype of ours, by its number.
bool is_format_number(const std::optional<c10::IValue>& value);
// The place of a node's dtype argument, or -1.
int place_of_dtype(const jit::Node* node);
// Whether an operator with a dtype argument makes a tensor of numbers: where none is given, the default dtype holds. Others go by their `self`.
bool is_factory(const c10::FunctionSchema& schema);

// Whether a value is a tensor of ours or holds one, in objects and containers too.
bool holds_format(const c10::IValue& value);
// Whether a graph, or one that it calls, has a constant of ours or names a dtype of ours.
bool names_format(const jit::Graph& graph);

// Whether the calling thread is within an autocast that casts stock operands to a dtype of ours.
bool autocast_to_format();
// Whether a script's text has blocks of its own (`with torch.autocast(...)`).
bool has_blocks(const jit::Block* block);

} // namespace torch::formats
