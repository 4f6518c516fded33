// What is assigned to a tensor's attributes, and torch.Tensor called.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Assigning .data across the border between stock dtypes and ours, by set_data(self, data).
void patch_data(PyObject* set_data);
// Assigning .grad of another dtype is an error.
void patch_grad();
// .grad_dtype says our dtype where stock means the container.
void patch_grad_dtype();
// Calling torch.Tensor while the default dtype is ours, by legacy_tensor(*args).
void patch_tensor_new(PyObject* legacy_tensor);

// Whether a mode or a subclass is asked first, by PyTorch's own test, which its library does not
// export to C++. Below 0: a Python error.
int seen_by_torch_function(PyObject* self);

} // namespace torch::formats
