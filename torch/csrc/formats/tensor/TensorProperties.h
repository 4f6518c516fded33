// Assignments to a tensor's attributes, and calls of torch.Tensor.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Makes assignments to .data between stock and format dtypes call set_data(self, data).
void patch_data(PyObject* set_data);
// Makes the assignment of a .grad of another dtype an error.
void patch_grad();
// Makes .grad_dtype return the format dtype where PyTorch means the storage dtype.
void patch_grad_dtype();
// Makes torch.Tensor(*args) call legacy_tensor(*args) while the default is a format dtype.
void patch_tensor_new(PyObject* legacy_tensor);

// Returns whether PyTorch calls a mode or a subclass first, by its own test, which its library does
// not export to C++. Below 0: a Python error.
int seen_by_torch_function(PyObject* self);

} // namespace torch::formats
