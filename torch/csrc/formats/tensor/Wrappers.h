// Wrapper subclasses of format tensors.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// without_memory(dtype, sizes, strides, device): makes a format tensor as which a Python class
// wraps others, for Tensor._make_subclass.
PyObject* without_memory(PyObject* module, PyObject* args);

// set_wrapper_cast(cast): cast(wrapper, dtype) returns a wrapper of the cast tensor, or None for a
// class that it does not know.
PyObject* set_wrapper_cast(PyObject* module, PyObject* cast);

} // namespace torch::formats
