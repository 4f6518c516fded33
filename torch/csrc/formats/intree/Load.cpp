// A part of libtorch_python: what operators and scripts ask Python, whether or not the package torch_dtypes is there.
#include <torch/csrc/formats/PythonDepth.h>
#include <torch/csrc/formats/ScriptMasks.h>
#include <torch/csrc/formats/intree/ScriptPlan.h>

#include <ATen/native/formats/operators/StockFormula.h>

namespace torch::formats {

[[maybe_unused]] static const bool loaded = (at::formats::set_python_depth(&python_depth), set_node_rewriter(&rewrite_mask), true);

} // namespace torch::formats
