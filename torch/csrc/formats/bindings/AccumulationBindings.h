// Python's view of the accumulation policies.
#pragma once
#include <pybind11/pybind11.h>

namespace torch::formats {

void bind_accumulation(pybind11::module_& m);

} // namespace torch::formats
