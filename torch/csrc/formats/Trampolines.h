// Stock builtins that see a dtype or read a tensor's memory by its container get a C function of ours in front of theirs.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Reasons for the Python implementation of a hooked builtin to run instead of the stock one, and guards for a stock call on a tensor of
// ours (self, or the first argument): a stock dtype that a user wrote means just that, also where it is the container's.
enum class When : int {
  DtypeKeyword = 1,      // reason: dtype= names one of ours
  DtypeAnywhere = 2,     // reason: any argument is one of our dtypes
  DefaultDtype = 4,      // reason: no dtype= is given, and the default dtype is one of ours
  OwnSelf = 8,           // reason: self, or the first argument, is a tensor of ours
  OwnArgument = 16,      // reason: an argument other than self is a tensor of ours
  GuardKeyword = 32,     // guard: dtype= is given
  GuardAnywhere = 64,    // guard: any argument is a stock dtype or a stock tensor
  GuardAlways = 128,     // guard: always (Tensor.float, Tensor.bfloat16, ...)
  OwnNested = 256,       // reason: the first argument is a list (of lists ...) that begins with a tensor of ours, or a tuple with one
  OwnSelfDtype = 1024,   // reason: dtype= is given, and self, or the first argument, is a tensor of ours
  OwnOut = 512,          // reason: out= is a tensor of ours
  OwnData = 2048,        // reason: stock refused, and the data are an array of ml_dtypes or a typed storage of ours: stock calls pay nothing
  FirstCall = 4096,      // reason: nobody has called it before
  OwnScript = 8192,      // reason: a TorchScript call that works on formats, see ScriptCall.h; the only one for pybind11's methods
  OwnGiven = 16384,      // reason: the second argument is a tuple with a tensor of ours
  RunsBackward = 32768,  // guard: always; what runs within is the engine's, see StockFormula.h
  OwnAutocast = 131072,  // reason: the CPU's autocast dtype is one of ours
  OwnResult = 65536,     // the stock function runs first; reason: its result, or an argument, is a tensor of ours
};

// hook(builtin, implementation, when): implementation(stock, *args, **kwargs), with the bound self first where there is one. With OwnResult,
// implementation(result, *args, **kwargs).
PyObject* hook_builtin(PyObject* module, PyObject* args);
// call_operator(op, args, kwargs), for operators called by hand: OperatorCall.cpp.
PyObject* call_operator(PyObject* module, PyObject* const* given, Py_ssize_t count);
// TorchScript's aten::backward and aten::grad: a given gradient is cast to the dtype of its output.
void replace_backward_operators();
// What hooks of tensors and of graph nodes return has the dtype of the gradient that they were given.
void patch_gradient_hooks();
PyObject* set_default_format(PyObject* module, PyObject* dtype);
PyObject* get_default_format(PyObject* module, PyObject* unused);
// The default dtype if it is one of ours, else nullptr. Borrowed.
PyObject* default_dtype_object();

} // namespace torch::formats
