// A part of libtorch_python: what operators ask Python, whether or not the package torch_dtypes is
// there.
#include <torch/csrc/formats/hooks/PythonDepth.h>

#include <ATen/native/formats/operators/boxed/StockFormula.h>

namespace torch::formats {

[[maybe_unused]] static const bool loaded = (at::formats::set_python_depth(&python_depth), true);

} // namespace torch::formats
