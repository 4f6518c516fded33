// C functions in front of stock builtins that use a dtype, or read memory by the storage dtype.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Reasons for a hooked builtin's Python implementation to run, and guards for a stock call. Under a
// guard, a stock dtype that a user wrote beside a format tensor (self, or the first argument) keeps
// its meaning, also if it is the storage dtype. A row has the enumerator, its name in Python
// (_C.When), its bit, and its meaning.
#define TORCH_DTYPES_FORALL_WHEN(_)                                                                \
  _(DtypeKeyword, DTYPE_KEYWORD, 0, "dtype= is a format dtype")                                    \
  _(DtypeAnywhere, DTYPE_ANYWHERE, 1, "any argument is a format dtype")                            \
  _(DefaultDtype, DEFAULT_DTYPE, 2, "no dtype= is given, and the default is a format dtype")       \
  _(OwnSelf, OWN_SELF, 3, "self, or the first argument, is a format tensor")                       \
  _(OwnArgument, OWN_ARGUMENT, 4, "an argument other than self is a format tensor")                \
  _(GuardKeyword, GUARD_KEYWORD, 5, "guard: dtype= is given")                                      \
  _(GuardAnywhere, GUARD_ANYWHERE, 6, "guard: any argument is a stock dtype or a stock tensor")    \
  _(GuardAlways, GUARD_ALWAYS, 7, "guard: always (Tensor.float, Tensor.bfloat16, ...)")            \
  _(OwnNested, OWN_NESTED, 8,                                                                      \
    "the first argument is a list or tuple (of lists ...) that contains a format tensor")          \
  _(OwnOut, OWN_OUT, 9, "out= is a format tensor")                                                 \
  _(OwnSelfDtype, OWN_SELF_DTYPE, 10,                                                              \
    "dtype= is given, and self, or the first argument, is a format tensor")                        \
  _(OwnData, OWN_DATA, 11,                                                                         \
    "the stock function refused data that are an array of ml_dtypes, a typed storage of a format " \
    "dtype, or a format dtype's name: stock calls cost no more")                                   \
  _(OwnScript, OWN_SCRIPT, 12,                                                                     \
    "a TorchScript call works on formats (ScriptCall.h); the only reason for pybind11's methods")  \
  _(OwnGiven, OWN_GIVEN, 13, "a tuple after the first argument contains a format tensor")          \
  _(RunsBackward, RUNS_BACKWARD, 14, "guard: always; the engine runs within (StockFormula.h)")     \
  _(OwnResult, OWN_RESULT, 15,                                                                     \
    "the stock function runs first, and its result, or an argument, is a format tensor")           \
  _(OwnAutocast, OWN_AUTOCAST, 16,                                                                 \
    "the autocast dtype of the CPU or the GPU is a format dtype, or was in the outermost block")

enum class When : int {
#define DEFINE(name, python, bit, meaning) name = 1 << bit,
  TORCH_DTYPES_FORALL_WHEN(DEFINE)
#undef DEFINE
};

// hook(builtin, implementation, when): implementation(stock, *args, **kwargs), with the bound self
// after `stock` for a method. With OwnResult, implementation(result, *args, **kwargs).
PyObject* hook_builtin(PyObject* module, PyObject* args);
PyObject* set_default_format(PyObject* module, PyObject* dtype);
PyObject* get_default_format(PyObject* module, PyObject* unused);
// Returns the default dtype if it is a format dtype, else nullptr. Borrowed.
PyObject* default_dtype_object();

} // namespace torch::formats
