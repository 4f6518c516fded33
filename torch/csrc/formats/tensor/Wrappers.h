// Wrapper subclasses of tensors of ours.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// without_memory(dtype, sizes, strides, device): a tensor of ours that a Python class wraps others
// by, for Tensor._make_subclass.
PyObject* without_memory(PyObject* module, PyObject* args);

// set_wrapper_cast(cast): cast(wrapper, dtype) gives the wrapper of what it wraps in a dtype, or
// None for a class that it does not know.
PyObject* set_wrapper_cast(PyObject* module, PyObject* cast);

} // namespace torch::formats
