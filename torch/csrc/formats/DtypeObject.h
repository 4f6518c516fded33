// Python's view of a format: a torch.dtype object, and what torch.dtype, torch.finfo and Tensor.dtype say of it.
#pragma once
#include <torch/csrc/python_headers.h>

#include <c10/formats/FormatRegistry.h>

namespace torch::formats {

// The dtype object of a format (made at the first call, never freed: the same parameters give the same object). Borrowed.
PyObject* dtype_object(const c10::formats::FormatEntry& entry);

// The format of a dtype object of ours, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_dtype(PyObject* object);
// Whether an object is a tensor. (THPVariable_Check asks the metaclass's __instancecheck__, which is slow for everything else.)
bool is_tensor(PyObject* object);
// The format of a tensor of ours, within wrappers of torch.func too, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_tensor(PyObject* object);

// Teach torch.Tensor.dtype and the attributes of torch.dtype our dtypes. `reduce` is called with a dtype of ours for __reduce__.
void patch_dtype(PyObject* reduce);
// Teach torch.finfo our dtypes.
void patch_finfo();
// Numbers assigned to an item of a tensor of ours round once, to its format.
void patch_setitem();
// Assigning .data across the border between stock dtypes and ours (by set_data(self, data)), and .grad of another dtype (an error);
// calling torch.Tensor while the default dtype is ours (by legacy_tensor(*args)).
void patch_tensor_properties(PyObject* set_data, PyObject* legacy_tensor);
// DLPack's C exchange API refuses tensors of ours; capsule: torch.Tensor.__dlpack_c_exchange_api__.
void patch_dlpack_exchange(PyObject* capsule);

// Python functions (FormatSearch.cpp): the name of a number format somewhere in a value, or None; the same, of tensors alone and not of
// dtypes; and the classes of modules, optimizers and functools.partial for both.
PyObject* format_in(PyObject*, PyObject* value);
PyObject* format_in_tensors(PyObject*, PyObject* value);
PyObject* set_searched_classes(PyObject*, PyObject* args);

// Replaces `name` in a static type's dictionary by a getter that falls back on the one found there. Needed where the type's own table
// lies in read-only memory (torch.dtype, torch.finfo).
getter replace_getter(PyTypeObject* type, const char* name, getter own);

} // namespace torch::formats
