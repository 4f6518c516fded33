// Every place of PyTorch that is changed, or read by its private layout, in C++: one list.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Installs them; implementations: what those that run Python call, by name.
void install_patches(PyObject* implementations);
// The list, for docs/design.md: (target, what is done there, why, the file, the releases it was seen to work on).
PyObject* list_patches();

} // namespace torch::formats
