// Every place of PyTorch that is changed, or read by its private layout, in C++: one list.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Installs them. `implementations`: the Python functions that rows run, by target.
void install_patches(PyObject* implementations);
// The list: (target, how, why, file, "module:function" that it runs or None, first release, last
// release).
PyObject* list_patches();

} // namespace torch::formats
