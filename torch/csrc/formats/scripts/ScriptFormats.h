// Whether a script works on number formats: by what it is called with, and by what its graph names.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

namespace torch::formats {

// Whether a value is a format tensor or holds one, in objects and containers too.
bool holds_format(const c10::IValue& value);
// Whether a graph, or one that it calls, has a format tensor as a constant or names a format dtype.
bool names_format(const jit::Graph& graph);
// Whether the calling thread is within an autocast that casts stock operands to a format dtype.
bool autocast_to_format();

} // namespace torch::formats
