// Operators called by hand, and operators of TorchScript that call the engine.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// call_operator(op, function, args, kwargs): calls `function`, which is op's of torch.ops.
PyObject* call_operator(PyObject* module, PyObject* const* given, Py_ssize_t count);
// Makes TorchScript's aten::backward and aten::grad cast a gradient to the dtype of its output.
void replace_backward_operators();

} // namespace torch::formats
