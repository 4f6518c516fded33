// Python's side of an observation: torch_dtypes/workbench/observation/ has the hooks that call it.
#pragma once
#include <pybind11/pybind11.h>

namespace torch::formats {

void bind_observing(pybind11::module_& m);

} // namespace torch::formats
