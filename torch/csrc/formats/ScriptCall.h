// TorchScript functions that work on number formats: which calls do, and how they run.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Whether a call works on formats: given[0] is a script function, method, module or graph, which may hold tensors or name dtypes of ours; the
// others are its arguments.
bool script_works_on_formats(PyObject* const* given, Py_ssize_t count);

// Makes the functions that run such calls known to the extension module.
void bind_script_calls(PyObject* module);

} // namespace torch::formats
