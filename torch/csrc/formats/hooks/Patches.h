// The one list of places in PyTorch that C++ changes, or reads by their private layout.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Installs all rows. `implementations`: the Python functions that rows run, by target.
void install_patches(PyObject* implementations);
// Returns the list: (target, how, why, file, "module:function" that it runs or None, first release,
// last release).
PyObject* list_patches();

} // namespace torch::formats
