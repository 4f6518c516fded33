// Whether a value holds a number format.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Python functions: the name of a number format somewhere in a value, or None; and the classes of
// modules, optimizers and functools.partial for it.
PyObject* format_in(PyObject*, PyObject* value);
// The same, for which a dtype alone does not count.
PyObject* format_in_tensors(PyObject*, PyObject* value);
PyObject* set_searched_classes(PyObject*, PyObject* args);

} // namespace torch::formats
