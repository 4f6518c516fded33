// C functions in front of builtins. Reaches into: the PyMethodDef of methods (ml_meth, writable
// memory), and the field `vectorcall` of functions. The builtin stays the same object with the same
// hash, so TorchScript, torch.compile and dictionaries of functions still know it. A stock call
// costs one more test of kwargs.
#include <torch/csrc/formats/hooks/Trampolines.h>

#include <ATen/FormatTensor.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/casts/AutocastCasts.h>
#include <ATen/native/formats/overlay/Autocast.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/scripts/ScriptCall.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace torch::formats {
namespace {

constexpr size_t kMaxHooks = 192;

struct Hook {
  PyCFunction stock = nullptr;
  // A copy with the stock function. The implementation gets a callable made from it.
  PyMethodDef stock_def{};
  PyObject* implementation = nullptr;
  int when = 0;
  bool is_method = false;
  vectorcallfunc vectorcall = nullptr; // set for a function without arguments
};

std::array<Hook, kMaxHooks> hooks;
size_t hook_count = 0;
PyObject* default_dtype = nullptr; // a format dtype, or nullptr while the stock default holds
PyObject* dtype_keyword = nullptr;

constexpr int kScans = static_cast<int>(When::DtypeAnywhere) | static_cast<int>(When::OwnArgument) |
    static_cast<int>(When::GuardAnywhere);

bool has(const Hook& h, When w) {
  return (h.when & static_cast<int>(w)) != 0;
}

// Kinds of the arguments of one call, as the hooks need them.
struct Arguments {
  bool own_dtype = false, own_tensor = false, stock_dtype = false, stock_tensor = false;

  void see(PyObject* value) {
    if (THPDtype_Check(value)) {
      (format_of_dtype(value) ? own_dtype : stock_dtype) = true;
    } else if (is_tensor(value)) {
      (format_of_tensor(value) ? own_tensor : stock_tensor) = true;
    }
  }

  Arguments(PyObject* args, PyObject* kwargs) {
    for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(args); i < n; ++i) see(PyTuple_GET_ITEM(args, i));
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) see(value);
  }
};

// Tests self of a method; of a function the first argument, or input= if it is given by name.
bool first_is_own_tensor(const Hook& h, PyObject* self, PyObject* args, PyObject* kwargs) {
  if (h.is_method) return format_of_tensor(self) != nullptr;
  if (PyTuple_GET_SIZE(args) > 0) return format_of_tensor(PyTuple_GET_ITEM(args, 0)) != nullptr;
  return kwargs && format_of_tensor(PyDict_GetItemString(kwargs, "input")) != nullptr;
}

constexpr int kMostDimensions = 128; // PyTorch's limit for nested lists; interop.py has the same

// Returns whether a nested list or tuple contains a format tensor. `left` counts the lists still to
// search, since one may contain itself, and more than once.
bool holds_own_tensor_within(PyObject* data, int depth, int64_t& left) {
  for (Py_ssize_t i = 0, n = PySequence_Fast_GET_SIZE(data); i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(data, i);
    if (PyFloat_CheckExact(item) || PyLong_CheckExact(item)) continue; // most items
    if (!PyList_Check(item) && !PyTuple_Check(item)) {
      if (format_of_tensor(item)) return true;
    } else if (depth < kMostDimensions && --left > 0 &&
               holds_own_tensor_within(item, depth + 1, left)) {
      return true;
    }
  }
  return false;
}

bool first_holds_own_tensor(PyObject* args) {
  PyObject* first = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (!first || (!PyList_Check(first) && !PyTuple_Check(first)) ||
      !at::formats::any_format_tensor())
    return false;
  int64_t left = int64_t{1} << 22;
  return holds_own_tensor_within(first, 0, left);
}

bool holds_own_tensor(PyObject* tuple) {
  if (!tuple || !PyTuple_Check(tuple)) return false;
  for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(tuple); i < n; ++i) {
    if (format_of_tensor(PyTuple_GET_ITEM(tuple, i))) return true;
  }
  return false;
}

bool later_hold_own_tensors(PyObject* args) {
  for (Py_ssize_t i = 1, n = PyTuple_GET_SIZE(args); i < n; ++i) {
    if (holds_own_tensor(PyTuple_GET_ITEM(args, i))) return true;
  }
  return false;
}

// Returns an attribute, or nullptr without an exception.
THPObjectPtr attribute(PyObject* object, const char* name) {
  THPObjectPtr value(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value;
}

// Returns whether data, or the first element of a nested list, have a format dtype or a type of
// ml_dtypes.
bool has_own_elements(PyObject* data) {
  for (int depth = 0;
       data && depth < kMostDimensions && (PyList_Check(data) || PyTuple_Check(data)); ++depth) {
    data = PySequence_Fast_GET_SIZE(data) > 0 ? PySequence_Fast_GET_ITEM(data, 0) : nullptr;
  }
  if (!data || is_tensor(data)) return false;
  THPObjectPtr dtype = attribute(data, "dtype");
  if (!dtype) return false;
  if (THPDtype_Check(dtype.get())) return format_of_dtype(dtype.get()) != nullptr;
  THPObjectPtr type = attribute(dtype.get(), "type");
  THPObjectPtr module = type ? attribute(type.get(), "__module__") : THPObjectPtr();
  return module && PyUnicode_Check(module.get()) &&
      PyUnicode_CompareWithASCIIString(module.get(), "ml_dtypes") == 0;
}

// Returns whether data are a name like "torch.posit16es2", which x.type() returns.
bool names_own_dtype(PyObject* data) {
  if (!PyUnicode_Check(data)) return false;
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(data, &length);
  if (!text) PyErr_Clear(); // not a valid text
  const std::string_view name(text ? text : "", static_cast<size_t>(length)), prefix("torch.");
  if (name.substr(0, prefix.size()) != prefix) return false;
  const auto formats = c10::formats::numbered_formats();
  return std::any_of(formats.begin(), formats.end(),
                     [&](const auto* entry) { return name.substr(prefix.size()) == entry->name; });
}

// Returns whether the implementation must handle data for which the stock call raised. The
// exception is then cleared.
bool refused_own_data(const Hook& h, PyObject* data) {
  if (!has(h, When::OwnData) || !data || !PyErr_Occurred()) return false;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (!has_own_elements(data) && !(h.is_method && names_own_dtype(data))) {
    PyErr_Restore(type, value, traceback);
    return false;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return true;
}

PyObject* first_argument(PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) > 0) return PyTuple_GET_ITEM(args, 0);
  PyObject* data = kwargs ? PyDict_GetItemString(kwargs, "data") : nullptr;
  return data || !kwargs ? data : PyDict_GetItemString(kwargs, "obj");
}

// first: the stock function, or its result.
PyObject* call_implementation(const Hook& h, PyObject* first, PyObject* self, PyObject* args,
                              PyObject* kwargs) {
  const Py_ssize_t given = args ? PyTuple_GET_SIZE(args) : 0;
  const Py_ssize_t extra = h.is_method ? 2 : 1;
  THPObjectPtr all(PyTuple_New(given + extra));
  if (!all) return nullptr;
  PyTuple_SET_ITEM(all.get(), 0, Py_NewRef(first));
  if (h.is_method) PyTuple_SET_ITEM(all.get(), 1, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < given; ++i)
    PyTuple_SET_ITEM(all.get(), i + extra, Py_NewRef(PyTuple_GET_ITEM(args, i)));
  return PyObject_Call(h.implementation, all.get(), kwargs);
}

PyObject* run_implementation(const Hook& h, PyObject* self, PyObject* args, PyObject* kwargs) {
  THPObjectPtr stock(PyCFunction_NewEx(const_cast<PyMethodDef*>(&h.stock_def), self, nullptr));
  return stock ? call_implementation(h, stock.get(), self, args, kwargs) : nullptr;
}

PyObject* run_stock(const Hook& h, PyObject* self, PyObject* args, PyObject* kwargs) {
  if (!(h.stock_def.ml_flags & METH_KEYWORDS)) return h.stock(self, args);
  return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(h.stock))(self, args,
                                                                                     kwargs);
}

// Raises in PyTorch's own modes, which make fake tensors or graphs. A hidden call would run now,
// and its result would become a constant of the graph.
bool refused_by_capture() {
  using Key = c10::impl::TorchDispatchModeKey;
  bool captures = false;
  for (const Key key : {Key::FAKE, Key::PROXY, Key::FUNCTIONAL}) {
    captures |= c10::impl::TorchDispatchModeTLS::get_mode(key).has_value();
  }
  if (captures) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "expected stock dtypes in a captured graph (fake tensors, torch.export, "
                    "make_fx), but got a format dtype, which no graph can hold; run the eager "
                    "code, or convert a float32 model by torch_dtypes.quantize_, whose layers are "
                    "captured as stock ones");
  }
  return captures;
}

// Tests a call of a script; the self of a script's method is among the arguments.
bool is_script_on_formats(const Hook& h, PyObject* args, PyObject* kwargs) {
  if (!has(h, When::OwnScript)) return false;
  std::vector<PyObject*> given(PySequence_Fast_ITEMS(args),
                               PySequence_Fast_ITEMS(args) + PyTuple_GET_SIZE(args));
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) given.push_back(value);
  return script_works_on_formats(given.data(), static_cast<Py_ssize_t>(given.size()));
}

PyObject* run_stock_first(const Hook& h, PyObject* self, PyObject* args, PyObject* kwargs) {
  THPObjectPtr result(run_stock(h, self, args, kwargs));
  if (!result) return nullptr;
  const bool has_format =
      holds_own_tensor(args) || holds_own_tensor(result.get()) || format_of_tensor(result.get());
  return has_format ? call_implementation(h, result.get(), self, args, kwargs) : result.release();
}

PyObject* call_with_keywords(const Hook& h, PyObject* self, PyObject* args, PyObject* kwargs) {
  if (has(h, When::OwnResult)) return run_stock_first(h, self, args, kwargs);
  std::optional<at::formats::BackwardGuard> backward;
  if (has(h, When::RunsBackward)) backward.emplace();
  PyObject* dtype = kwargs ? PyDict_GetItemWithError(kwargs, dtype_keyword) : nullptr;
  if (dtype == Py_None) dtype = nullptr;
  bool replaced = (dtype && has(h, When::DtypeKeyword) && format_of_dtype(dtype)) ||
      (!dtype && default_dtype && has(h, When::DefaultDtype)) ||
      ((has(h, When::OwnSelf) || (dtype && has(h, When::OwnSelfDtype))) &&
       first_is_own_tensor(h, self, args, kwargs)) ||
      (has(h, When::OwnNested) && first_holds_own_tensor(args)) ||
      (has(h, When::OwnAutocast) && at::formats::autocast_has_format()) ||
      (has(h, When::OwnGiven) && later_hold_own_tensors(args)) ||
      (kwargs && has(h, When::OwnOut) && format_of_tensor(PyDict_GetItemString(kwargs, "out"))) ||
      is_script_on_formats(h, args, kwargs);
  // A default dtype counts as an argument of factories. It does not count in a backward pass, whose
  // formulas must stay visible to modes.
  const bool of_default =
      !dtype && default_dtype && has(h, When::DefaultDtype) && !has(h, When::RunsBackward);
  bool own_dtype = (dtype && format_of_dtype(dtype)) || of_default;
  bool guarded = has(h, When::GuardAlways) || (dtype && has(h, When::GuardKeyword));
  if (h.when & kScans) {
    const Arguments given(args, kwargs);
    own_dtype |= given.own_dtype;
    replaced |= (given.own_dtype && has(h, When::DtypeAnywhere)) ||
        (given.own_tensor && has(h, When::OwnArgument));
    guarded |= (given.stock_dtype || given.stock_tensor) && has(h, When::GuardAnywhere);
  }
  // Without a mode there is nothing to hide, and the guard would only cost time.
  std::optional<at::formats::HiddenFromModes> hidden;
  if (own_dtype && c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    if (refused_by_capture()) return nullptr;
    hidden.emplace();
  }
  if (replaced) return run_implementation(h, self, args, kwargs);
  if (!guarded || !first_is_own_tensor(h, self, args, kwargs)) {
    PyObject* result = run_stock(h, self, args, kwargs);
    if (!result && refused_own_data(h, first_argument(args, kwargs)))
      return run_implementation(h, self, args, kwargs);
    return result;
  }
  const at::formats::ExplicitDtypeGuard guard;
  return run_stock(h, self, args, kwargs);
}

// METH_NOARGS and METH_O: `argument` is nullptr or the one argument.
PyObject* call_with_one_argument(const Hook& h, PyObject* self, PyObject* argument) {
  THPObjectPtr args;
  const bool tensor =
      has(h, When::OwnSelf) && format_of_tensor(h.is_method ? self : argument) != nullptr;
  const bool dtype = (has(h, When::DtypeAnywhere) && format_of_dtype(argument)) ||
      (has(h, When::DefaultDtype) && default_dtype) ||
      (has(h, When::OwnAutocast) &&
       (at::formats::autocast_has_format() || at::formats::autocast_has_mixed()));
  if (!tensor && !dtype) {
    PyObject* result = h.stock(self, argument);
    if (result || !refused_own_data(h, argument)) return result;
  }
  std::optional<at::formats::HiddenFromModes> hidden;
  if (dtype && c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    if (refused_by_capture()) return nullptr;
    hidden.emplace();
  }
  args = argument ? PyTuple_Pack(1, argument) : PyTuple_New(0);
  return args ? run_implementation(h, self, args.get(), nullptr) : nullptr;
}

// METH_FASTCALL | METH_KEYWORDS, which pybind11's methods have from torch 2.13 on. The values of
// `names` follow the `count` positional ones.
using Vectorcall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

// Makes the tuple and the dictionary for METH_VARARGS | METH_KEYWORDS. Returns false after an
// error.
bool collect(PyObject* const* given, Py_ssize_t count, PyObject* names, THPObjectPtr& args,
             THPObjectPtr& kwargs) {
  const Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
  args = PyTuple_New(count);
  if (!args || (keywords && !(kwargs = PyDict_New()))) return false;
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(args.get(), i, Py_NewRef(given[i]));
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    if (PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(names, i), given[count + i]) < 0)
      return false;
  }
  return true;
}

PyObject* call_with_vector(const Hook& h, PyObject* self, PyObject* const* given, Py_ssize_t count,
                           PyObject* names) {
  const Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
  if (!has(h, When::OwnScript) || !script_works_on_formats(given, count + keywords)) {
    return reinterpret_cast<Vectorcall>(reinterpret_cast<void*>(h.stock))(self, given, count,
                                                                          names);
  }
  THPObjectPtr args, kwargs;
  return collect(given, count, names, args, kwargs)
      ? run_implementation(h, self, args.get(), kwargs.get())
      : nullptr;
}

// Calls a function (not a method) of METH_VARARGS | METH_KEYWORDS, and makes the tuple and the
// dictionary as Python would. Its ml_meth stays, since the hash depends on it, and dictionaries may
// have the function as a key already.
PyObject* call_function_object(const Hook& h, PyObject* function, PyObject* const* given,
                               size_t flags, PyObject* names) {
  THPObjectPtr args, kwargs;
  if (!collect(given, PyVectorcall_NARGS(flags), names, args, kwargs) ||
      Py_EnterRecursiveCall(" while calling a Python object"))
    return nullptr;
  PyObject* result =
      call_with_keywords(h, PyCFunction_GET_SELF(function), args.get(), kwargs.get());
  Py_LeaveRecursiveCall();
  return result;
}

// The same for METH_NOARGS; with arguments the stock function raises.
PyObject* call_function_without_arguments(const Hook& h, PyObject* function, PyObject* const* given,
                                          size_t flags, PyObject* names) {
  if (PyVectorcall_NARGS(flags) > 0 || names) return h.vectorcall(function, given, flags, names);
  return call_with_one_argument(h, PyCFunction_GET_SELF(function), nullptr);
}

// Python's call of a C function does not say which hook it belongs to. So each hook has a function
// in each signature, which adds the hook and does nothing else. There are six times kMaxHooks
// functions.
template <size_t I>
struct Trampoline {
  static PyObject* keywords(PyObject* self, PyObject* args, PyObject* kwargs) {
    return call_with_keywords(hooks[I], self, args, kwargs);
  }
  static PyObject* arguments(PyObject* self, PyObject* args) {
    return call_with_keywords(hooks[I], self, args, nullptr);
  }
  static PyObject* argument(PyObject* self, PyObject* value) {
    return call_with_one_argument(hooks[I], self, value);
  }
  static PyObject* vector(PyObject* self, PyObject* const* given, Py_ssize_t count,
                          PyObject* names) {
    return call_with_vector(hooks[I], self, given, count, names);
  }
  static PyObject* function(PyObject* function, PyObject* const* given, size_t flags,
                            PyObject* names) {
    return call_function_object(hooks[I], function, given, flags, names);
  }
  static PyObject* no_arguments(PyObject* function, PyObject* const* given, size_t flags,
                                PyObject* names) {
    return call_function_without_arguments(hooks[I], function, given, flags, names);
  }
};

// One trampoline for each hook: the results of make.operator()<I>(), by I.
template <typename Make, size_t... I>
constexpr auto trampolines_of(Make make, std::index_sequence<I...>) {
  return std::array{make.template operator()<I>()...};
}
constexpr auto kHooks = std::make_index_sequence<kMaxHooks>{};
constexpr auto keyword_trampolines = trampolines_of(
    []<size_t I>() -> PyCFunctionWithKeywords { return &Trampoline<I>::keywords; }, kHooks);
constexpr auto function_trampolines =
    trampolines_of([]<size_t I>() -> vectorcallfunc { return &Trampoline<I>::function; }, kHooks);
constexpr auto no_arguments_trampolines = trampolines_of(
    []<size_t I>() -> vectorcallfunc { return &Trampoline<I>::no_arguments; }, kHooks);
constexpr auto vector_trampolines =
    trampolines_of([]<size_t I>() -> Vectorcall { return &Trampoline<I>::vector; }, kHooks);
constexpr auto arguments_trampolines =
    trampolines_of([]<size_t I>() -> PyCFunction { return &Trampoline<I>::arguments; }, kHooks);
constexpr auto argument_trampolines =
    trampolines_of([]<size_t I>() -> PyCFunction { return &Trampoline<I>::argument; }, kHooks);

} // namespace

PyObject* hook_builtin(PyObject*, PyObject* args) {
  PyObject *builtin = nullptr, *implementation = nullptr;
  int when = 0;
  if (!PyArg_ParseTuple(args, "OOi", &builtin, &implementation, &when)) return nullptr;
  if (!dtype_keyword) dtype_keyword = PyUnicode_InternFromString("dtype");
  PyMethodDef* def = nullptr;
  bool is_method = false;
  PyCFunctionObject* function = nullptr;
  if (PyCFunction_Check(builtin)) {
    function = reinterpret_cast<PyCFunctionObject*>(builtin);
    def = function->m_ml;
  } else if (Py_TYPE(builtin) == &PyClassMethodDescr_Type) {
    def = reinterpret_cast<PyMethodDescrObject*>(builtin)->d_method;
  } else if (Py_TYPE(builtin) == &PyMethodDescr_Type) {
    def = reinterpret_cast<PyMethodDescrObject*>(builtin)->d_method;
    is_method = true;
  }
  if (!def) {
    PyErr_Format(
        PyExc_TypeError,
        "expected a builtin function or method to hook, but got %R; use a supported release",
        builtin);
    return nullptr;
  }
  for (size_t i = 0; i < hook_count; ++i) {
    if (hooks[i].stock_def.ml_name == def->ml_name &&
        ((function &&
          (function->vectorcall == function_trampolines[i] ||
           function->vectorcall == no_arguments_trampolines[i])) ||
         reinterpret_cast<void*>(def->ml_meth) == reinterpret_cast<void*>(keyword_trampolines[i]) ||
         def->ml_meth == argument_trampolines[i] || def->ml_meth == arguments_trampolines[i] ||
         reinterpret_cast<void*>(def->ml_meth) == reinterpret_cast<void*>(vector_trampolines[i]))) {
      PyErr_Format(PyExc_RuntimeError, "expected one hook of %R, but got a second; remove a row",
                   builtin);
      return nullptr;
    }
  }
  if (hook_count == kMaxHooks) {
    PyErr_SetString(PyExc_RuntimeError,
                    "expected at most kMaxHooks hooks, but got more; raise kMaxHooks in "
                    "torch/csrc/formats/hooks/Trampolines.cpp");
    return nullptr;
  }
  const int kind =
      def->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL);
  Hook& h = hooks[hook_count];
  h = Hook{def->ml_meth, *def,      Py_NewRef(implementation),
           when,         is_method, function ? function->vectorcall : nullptr};
  if (function && kind == (METH_VARARGS | METH_KEYWORDS)) {
    function->vectorcall = function_trampolines[hook_count];
  } else if (function && kind == METH_NOARGS) {
    function->vectorcall = no_arguments_trampolines[hook_count];
  } else if (kind == (METH_VARARGS | METH_KEYWORDS)) {
    def->ml_meth =
        reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(keyword_trampolines[hook_count]));
  } else if (kind == (METH_FASTCALL | METH_KEYWORDS)) {
    def->ml_meth =
        reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(vector_trampolines[hook_count]));
  } else if (kind == METH_VARARGS) {
    def->ml_meth = arguments_trampolines[hook_count];
  } else if (kind == METH_NOARGS || kind == METH_O) {
    def->ml_meth = argument_trampolines[hook_count];
  } else {
    Py_CLEAR(h.implementation);
    PyErr_Format(PyExc_TypeError,
                 "expected %R to take (args, kwargs), one argument or none, but got the flags %d; "
                 "use a supported release",
                 builtin, def->ml_flags);
    return nullptr;
  }
  ++hook_count;
  Py_RETURN_NONE;
}

PyObject* set_default_format(PyObject*, PyObject* dtype) {
  if (dtype != Py_None && !format_of_dtype(dtype)) {
    PyErr_Format(PyExc_TypeError,
                 "expected a dtype of a number format or None, but got %R; make one by "
                 "torch_dtypes.dtype(name)",
                 dtype);
    return nullptr;
  }
  Py_XSETREF(default_dtype, dtype == Py_None ? nullptr : Py_NewRef(dtype));
  Py_RETURN_NONE;
}

PyObject* default_dtype_object() {
  return default_dtype;
}

PyObject* get_default_format(PyObject*, PyObject*) {
  return Py_NewRef(default_dtype ? default_dtype : Py_None);
}

} // namespace torch::formats
