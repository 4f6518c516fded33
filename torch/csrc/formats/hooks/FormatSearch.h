// Searches a value for a number format.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Python functions: the first returns the name of a number format anywhere in a value, or None.
PyObject* format_in(PyObject*, PyObject* value);
// Returns the name of the format of a tensor in a value, or None; dtypes do not count.
PyObject* format_in_tensors(PyObject*, PyObject* value);
// Sets the classes of modules, optimizers and functools.partial for the search.
PyObject* set_searched_classes(PyObject*, PyObject* args);

} // namespace torch::formats
