// Python's view of a format: a torch.dtype object, and what torch.dtype and Tensor.dtype say of it.
#pragma once
#include <torch/csrc/python_headers.h>

#include <c10/formats/FormatRegistry.h>

namespace torch::formats {

// The dtype object of a format: one as long as the format has its number. Borrowed.
PyObject* dtype_object(const c10::formats::FormatEntry& entry);
// What is called with each new dtype object of a format made at run time: what makes it known to Python.
void set_announcer(PyObject* callable);
// Takes the number of a format back if nobody but this file has its dtype object (in Python's modules and tables it must not be any more).
bool retire_dtype(const c10::formats::FormatEntry& entry);

// The format of a dtype object of ours, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_dtype(PyObject* object);
// Whether an object is a tensor. (THPVariable_Check asks the metaclass's __instancecheck__, which is slow for everything else.)
bool is_tensor(PyObject* object);
// The format of a tensor of ours, within wrappers of torch.func too, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_tensor(PyObject* object);

// Teach Tensor.dtype our dtypes.
void patch_tensor_dtype();
// Teach the attributes of torch.dtype our dtypes. `reduce` is called with a dtype of ours for __reduce__.
void patch_dtype(PyObject* reduce);
// Replaces `name` in a static type's dictionary by a getter that falls back on the one found there. Needed where the type's own table
// lies in read-only memory (torch.dtype, torch.finfo).
getter replace_getter(PyTypeObject* type, const char* name, getter own);

} // namespace torch::formats
