// Operators called by hand, and those of TorchScript that call the engine.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// call_operator(op, function, args, kwargs), for operators called by hand: op of torch.ops calls
// the function.
PyObject* call_operator(PyObject* module, PyObject* const* given, Py_ssize_t count);
// TorchScript's aten::backward and aten::grad: a given gradient is cast to the dtype of its output.
void replace_backward_operators();

} // namespace torch::formats
