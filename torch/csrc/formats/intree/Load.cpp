// A part of libtorch_python: operators read the depth of Python calls, even without the package
// torch_dtypes.
#include <torch/csrc/formats/hooks/PythonDepth.h>

#include <ATen/native/formats/operators/boxed/StockFormula.h>

namespace torch::formats {

[[maybe_unused]] static const bool loaded = (at::formats::set_python_depth(&python_depth), true);

} // namespace torch::formats
