// Python's view of a format: a torch.dtype object.
#pragma once
#include <torch/csrc/python_headers.h>

#include <c10/formats/FormatRegistry.h>
#include <torch/csrc/Exceptions.h>

namespace torch::formats {

// The dtype object of a format: one as long as the format has its number. Borrowed.
PyObject* dtype_object(const c10::formats::FormatEntry& entry);
// The same for Python, a new reference; nullptr with Python's error where no number is free for it.
inline PyObject* new_dtype_reference(const c10::formats::FormatEntry& entry) {
  try {
    return Py_NewRef(dtype_object(entry));
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}
// What is called with each new dtype object of a format made at run time: what makes it known to
// Python.
void set_announcer(PyObject* callable);

// The format of a dtype object of ours, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_dtype(PyObject* object);
// Whether an object is a tensor. (THPVariable_Check asks the metaclass's __instancecheck__, which
// is slow for everything else.)
bool is_tensor(PyObject* object);
// The format of a tensor of ours, within wrappers of torch.func too, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_tensor(PyObject* object);

} // namespace torch::formats
