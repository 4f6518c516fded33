// Stock builtins that see a dtype or read a tensor's memory by its container get a C function of
// ours in front of theirs.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Reasons for the Python implementation of a hooked builtin to run instead of the stock one, and
// guards for a stock call on a tensor of ours (self, or the first argument): a stock dtype that a
// user wrote means just that, also where it is the container's. The enumerator, its name in Python
// (_C.When), its bit, and what it says.
#define TORCH_DTYPES_FORALL_WHEN(_)                                                                \
  _(DtypeKeyword, DTYPE_KEYWORD, 0, "dtype= names one of ours")                                    \
  _(DtypeAnywhere, DTYPE_ANYWHERE, 1, "any argument is one of our dtypes")                         \
  _(DefaultDtype, DEFAULT_DTYPE, 2, "no dtype= is given, and the default dtype is one of ours")    \
  _(OwnSelf, OWN_SELF, 3, "self, or the first argument, is a tensor of ours")                      \
  _(OwnArgument, OWN_ARGUMENT, 4, "an argument other than self is a tensor of ours")               \
  _(GuardKeyword, GUARD_KEYWORD, 5, "guard: dtype= is given")                                      \
  _(GuardAnywhere, GUARD_ANYWHERE, 6, "guard: any argument is a stock dtype or a stock tensor")    \
  _(GuardAlways, GUARD_ALWAYS, 7, "guard: always (Tensor.float, Tensor.bfloat16, ...)")            \
  _(OwnNested, OWN_NESTED, 8,                                                                      \
    "the first argument is a list or tuple (of lists ...) with a tensor of ours in it")            \
  _(OwnOut, OWN_OUT, 9, "out= is a tensor of ours")                                                \
  _(OwnSelfDtype, OWN_SELF_DTYPE, 10,                                                              \
    "dtype= is given, and self, or the first argument, is a tensor of ours")                       \
  _(OwnData, OWN_DATA, 11,                                                                         \
    "stock refused, and the data are an array of ml_dtypes or a typed storage of ours, or name a " \
    "dtype of ours: stock calls pay nothing")                                                      \
  _(OwnScript, OWN_SCRIPT, 12,                                                                     \
    "a TorchScript call that works on formats, see ScriptCall.h; the only one for pybind11's "     \
    "methods")                                                                                     \
  _(OwnGiven, OWN_GIVEN, 13, "a tuple behind the first argument has a tensor of ours")             \
  _(RunsBackward, RUNS_BACKWARD, 14,                                                               \
    "guard: always; what runs within is the engine's, see StockFormula.h")                         \
  _(OwnResult, OWN_RESULT, 15,                                                                     \
    "the stock function runs first, and its result, or an argument, is a tensor of ours")          \
  _(OwnAutocast, OWN_AUTOCAST, 16,                                                                 \
    "an autocast dtype, the CPU's or the GPU's, is one of ours, or was within the outermost "      \
    "block")

enum class When : int {
#define DEFINE(name, python, bit, meaning) name = 1 << bit,
  TORCH_DTYPES_FORALL_WHEN(DEFINE)
#undef DEFINE
};

// hook(builtin, implementation, when): implementation(stock, *args, **kwargs), with the bound self
// first where there is one. With OwnResult, implementation(result, *args, **kwargs).
PyObject* hook_builtin(PyObject* module, PyObject* args);
PyObject* set_default_format(PyObject* module, PyObject* dtype);
PyObject* get_default_format(PyObject* module, PyObject* unused);
// The default dtype if it is one of ours, else nullptr. Borrowed.
PyObject* default_dtype_object();

} // namespace torch::formats
