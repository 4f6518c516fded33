// Finds calls of TorchScript functions and methods that work on number formats.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Returns whether a call works on formats. given[0] is a script function, method, module or graph,
// which may contain format tensors or name format dtypes; the others are its arguments.
bool script_works_on_formats(PyObject* const* given, Py_ssize_t count);

} // namespace torch::formats
