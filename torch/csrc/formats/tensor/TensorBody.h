// Exchanges the bodies of Python tensors.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// exchange_bodies(tensor, other): exchanges the data of the two. The first keeps its autograd
// record.
PyObject* exchange_bodies(PyObject* module, PyObject* args);

// Must be called before tensor.data = data between two stock or two format dtypes. The tensor's
// change of dtype makes it forget which nodes of living graphs accumulate into it, and a later
// exchange needs them.
void remember_accumulators(PyObject* tensor, PyObject* data);

} // namespace torch::formats
