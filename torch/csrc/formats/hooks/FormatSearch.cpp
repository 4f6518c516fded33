// Searches a value that torch.compile is about to trace for a number format. It finds format
// tensors, parameters of modules and optimizers, also in containers, and dtypes if these count.
// None of the users' code may run: the search looks up no attribute, calls no iterator and makes no
// instance check on values. It reads Python's own structures in place, and a bounded number of
// them. The graph finds the rest (host/hooks/graphs.py).
#include <torch/csrc/formats/hooks/FormatSearch.h>

#include <ATen/FormatTensor.h>
#include <c10/formats/FormatRegistry.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>

namespace torch::formats {
namespace {

using c10::formats::FormatEntry;

// Lists in dicts in ...; an optimizer's parameters are four deep.
constexpr int kMaxDepth = 6;
constexpr int kMaxModuleDepth = 64; // modules in modules
constexpr Py_ssize_t kMaxItems = 512; // in one container
constexpr int kMaxValues = 1 << 14; // in one search, some 0.1 ms

// Python's classes that the search knows; never released.
struct Classes {
  PyTypeObject *module = nullptr, *optimizer = nullptr, *partial = nullptr;
};
Classes classes;

// Returns an entry of an instance's own dictionary, or nullptr. (If there was no dictionary, the
// one made here is the instance's.)
THPObjectPtr own_attribute(PyObject* object, const char* name) {
  THPObjectPtr dict(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear(); // a class with slots only
  return THPObjectPtr(dict && PyDict_Check(dict.get())
                          ? Py_XNewRef(PyDict_GetItemString(dict.get(), name))
                          : nullptr);
}

class Search {
 public:
  explicit Search(bool dtypes) : dtypes_(dtypes) {}

  const FormatEntry* find(PyObject* value, int depth, int modules) {
    if (!value || ++seen_ > kMaxValues) return nullptr;
    if (is_tensor(value)) return format_of_tensor(value);
    PyTypeObject* const type = Py_TYPE(value);
    if (THPDtype_Check(value)) return dtypes_ ? format_of_dtype(value) : nullptr;
    if (classes.module && PyType_IsSubtype(type, classes.module))
      return modules < kMaxModuleDepth ? in_module(value, modules) : nullptr;
    if (depth == kMaxDepth) return nullptr;
    if (PyTuple_Check(value))
      return in_array(reinterpret_cast<PyTupleObject*>(value)->ob_item, PyTuple_GET_SIZE(value),
                      depth, modules);
    if (PyList_Check(value))
      return in_array(reinterpret_cast<PyListObject*>(value)->ob_item, PyList_GET_SIZE(value),
                      depth, modules);
    if (PyDict_Check(value)) return in_dict(value, depth, modules);
    if (PyAnySet_Check(value)) return in_set(value, depth, modules);
    if (PyMethod_Check(value)) return find(PyMethod_GET_SELF(value), depth + 1, modules);
    if (classes.optimizer && PyType_IsSubtype(type, classes.optimizer)) {
      return find(own_attribute(value, "param_groups").get(), depth, modules);
    }
    return type == classes.partial ? in_partial(value, depth, modules) : nullptr;
  }

 private:
  const FormatEntry* in_array(PyObject* const* items, Py_ssize_t count, int depth, int modules) {
    for (Py_ssize_t i = 0; i < std::min(count, kMaxItems); ++i) {
      if (const FormatEntry* entry = find(items[i], depth + 1, modules)) return entry;
    }
    return nullptr;
  }

  const FormatEntry* in_dict(PyObject* dict, int depth, int modules) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; i < kMaxItems && PyDict_Next(dict, &position, &key, &value); ++i) {
      if (const FormatEntry* entry = find(value, depth + 1, modules)) return entry;
    }
    return nullptr;
  }

  // Uses the iterator of Python's own type, not a subclass's.
  const FormatEntry* in_set(PyObject* set, int depth, int modules) {
    THPObjectPtr items((PyFrozenSet_Check(set) ? PyFrozenSet_Type : PySet_Type).tp_iter(set));
    const FormatEntry* entry = nullptr;
    for (Py_ssize_t i = 0; items && !entry && i < kMaxItems; ++i) {
      THPObjectPtr item(Py_TYPE(items.get())->tp_iternext(items.get()));
      if (!item) break;
      entry = find(item.get(), depth + 1, modules);
    }
    PyErr_Clear(); // no memory for the iterator
    return entry;
  }

  const FormatEntry* in_module(PyObject* module, int modules) {
    for (const char* name : {"_parameters", "_buffers", "_modules"}) {
      THPObjectPtr dict = own_attribute(module, name);
      if (!dict || !PyDict_Check(dict.get())) continue; // __init__ is still running
      if (const FormatEntry* entry = in_dict(dict.get(), kMaxDepth - 1, modules + 1)) return entry;
    }
    return nullptr;
  }

  // Takes the exact type only, whose attributes are members of a struct.
  const FormatEntry* in_partial(PyObject* partial, int depth, int modules) {
    for (const char* name : {"func", "args", "keywords"}) {
      THPObjectPtr part(PyObject_GetAttrString(partial, name));
      if (!part) PyErr_Clear();
      if (const FormatEntry* entry = find(part.get(), depth + 1, modules)) return entry;
    }
    return nullptr;
  }

  const bool dtypes_;
  int seen_ = 0;
};

PyObject* name_or_none(const FormatEntry* entry) {
  if (!entry) Py_RETURN_NONE;
  return PyUnicode_FromString(entry->name.c_str());
}

} // namespace

PyObject* set_searched_classes(PyObject*, PyObject* args) {
  PyObject *module = nullptr, *optimizer = nullptr, *partial = nullptr;
  if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &module, &PyType_Type, &optimizer,
                        &PyType_Type, &partial))
    return nullptr;
  const auto keep = [](PyObject* type) { return reinterpret_cast<PyTypeObject*>(Py_NewRef(type)); };
  classes = {keep(module), keep(optimizer), keep(partial)};
  Py_RETURN_NONE;
}

PyObject* format_in(PyObject*, PyObject* value) {
  return name_or_none(Search(/*dtypes=*/true).find(value, 0, 0));
}

PyObject* format_in_tensors(PyObject*, PyObject* value) {
  if (!at::formats::any_format_tensor()) Py_RETURN_NONE; // this process has never had one
  return name_or_none(Search(/*dtypes=*/false).find(value, 0, 0));
}

} // namespace torch::formats
