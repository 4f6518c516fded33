// Python's view of a format: a torch.dtype object.
#pragma once
#include <torch/csrc/python_headers.h>

#include <c10/formats/FormatRegistry.h>
#include <torch/csrc/Exceptions.h>

namespace torch::formats {

// Returns the dtype object of a format, which is one while the format has its number. Borrowed.
PyObject* dtype_object(const c10::formats::FormatEntry& entry);
// Returns a new reference to the dtype object, or nullptr with Python's error if no number is free.
inline PyObject* new_dtype_reference(const c10::formats::FormatEntry& entry) {
  try {
    return Py_NewRef(dtype_object(entry));
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}
// Sets the function that announces each new dtype object of a run-time format to Python.
void set_announcer(PyObject* callable);

// Returns the format of a format dtype object, or nullptr for anything else.
const c10::formats::FormatEntry* format_of_dtype(PyObject* object);
// Returns whether an object is a tensor. (THPVariable_Check calls the metaclass's
// __instancecheck__, which is slow for all other objects.)
bool is_tensor(PyObject* object);
// Returns the format of a format tensor, also within wrappers of torch.func, else nullptr.
const c10::formats::FormatEntry* format_of_tensor(PyObject* object);

} // namespace torch::formats
