// A Python tensor gets another body.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// exchange_bodies(tensor, other): the data of the two change places. What autograd knows of the
// first stays with it.
PyObject* exchange_bodies(PyObject* module, PyObject* args);

// To be called before tensor.data = data within stock or within ours, where the tensor's own change
// of dtype makes it forget which nodes of living graphs accumulate into it: a later exchange must
// know.
void remember_accumulators(PyObject* tensor, PyObject* data);

} // namespace torch::formats
