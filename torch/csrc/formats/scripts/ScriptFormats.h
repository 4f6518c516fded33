// Tests whether a script works on number formats, by its arguments and by its graph.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

namespace torch::formats {

// Returns whether a value is or contains a format tensor, also in objects and containers.
bool holds_format(const c10::IValue& value);
// Returns whether a graph, or one that it calls, has a format tensor as a constant or names a
// format dtype.
bool names_format(const jit::Graph& graph);
// Returns whether the calling thread is in an autocast that casts stock operands to a format dtype.
bool autocast_to_format();

} // namespace torch::formats
