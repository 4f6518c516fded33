// Attention's masks in the graphs of scripts that work on number formats.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace torch::formats {

// Lets a node that stock's attention has for its masks take the operands' format, if it is one.
void rewrite_mask(jit::Node* node);

} // namespace torch::formats
