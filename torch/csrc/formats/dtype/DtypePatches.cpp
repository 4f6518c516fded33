// Reaches into: the getset table of torch._C.TensorBase (writable), the dictionary of torch.dtype.
#include <torch/csrc/formats/dtype/DtypePatches.h>

#include <ATen/Releases.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/tensor/TensorProperties.h>
#include <torch/csrc/utils/object_ptr.h>

namespace torch::formats {

using c10::formats::FormatEntry;

getter replace_getter(PyTypeObject* type, const char* name, getter own) {
  PyObject* property = PyDict_GetItemString(type->tp_dict, name); // borrowed
  TORCH_CHECK(property && Py_TYPE(property) == &PyGetSetDescr_Type, "expected ", type->tp_name, ".",
              name, " to be a property, but got ", property ? Py_TYPE(property)->tp_name : "none",
              "; use a supported release");
  const PyGetSetDef* stock = reinterpret_cast<PyGetSetDescrObject*>(property)->d_getset;
  // Has the lifetime of the type.
  auto* def = new PyGetSetDef{stock->name, own, stock->set, stock->doc, stock->closure};
  const getter previous = stock->get;
  THPObjectPtr descriptor(PyDescr_NewGetSet(type, def));
  if (!descriptor || PyDict_SetItemString(type->tp_dict, name, descriptor.get()) < 0)
    throw python_error();
  PyType_Modified(type);
  return previous;
}

namespace {

getter stock_tensor_dtype = nullptr;

// The stock getter calls a subclass's __torch_function__, and returns here with that disabled.
PyObject* tensor_dtype(PyObject* self, void* closure) {
  if (const FormatEntry* entry = format_of_tensor(self)) {
    const int seen = THPVariable_CheckExact(self) ? 0 : seen_by_torch_function(self);
    if (seen < 0) return nullptr;
    if (!seen) return new_dtype_reference(*entry);
  }
  return stock_tensor_dtype(self, closure);
}

PyObject* python_reduce = nullptr;
PyObject* stock_reduce = nullptr;
PyObject* stock_to_complex = nullptr;

PyObject* dtype_reduce(PyObject* self, PyObject*) {
  return PyObject_CallOneArg(format_of_dtype(self) ? python_reduce : stock_reduce, self);
}

PyObject* dtype_to_complex(PyObject* self, PyObject*) {
  const FormatEntry* entry = format_of_dtype(self);
  if (!entry) return PyObject_CallOneArg(stock_to_complex, self);
  PyErr_Format(PyExc_TypeError,
               "expected a dtype with a complex counterpart, but got torch.%s; use a stock dtype",
               entry->name.c_str());
  return nullptr;
}

PyObject* replace_method(const char* name, PyCFunction own) {
  PyObject* stock = PyDict_GetItemString(THPDtypeType.tp_dict, name);
  TORCH_CHECK(stock, "expected torch.dtype to have ", name,
              ", but got none; use a supported release");
  Py_INCREF(stock);
  auto* def = new PyMethodDef{name, own, METH_NOARGS, nullptr};
  THPObjectPtr method(PyDescr_NewMethod(&THPDtypeType, def));
  if (!method || PyDict_SetItemString(THPDtypeType.tp_dict, name, method.get()) < 0)
    throw python_error();
  PyType_Modified(&THPDtypeType);
  return stock;
}

PyObject* stock_to_real = nullptr;

PyObject* dtype_to_real(PyObject* self, PyObject*) {
  return format_of_dtype(self) ? Py_NewRef(self) : PyObject_CallOneArg(stock_to_real, self);
}

} // namespace

void patch_tensor_dtype() {
  PyTypeObject* tensor_base = reinterpret_cast<PyTypeObject*>(THPVariableClass)->tp_base;
  PyObject* property = PyDict_GetItemString(tensor_base->tp_dict, "dtype");
  TORCH_CHECK(property && Py_TYPE(property) == &PyGetSetDescr_Type,
              "expected Tensor.dtype to be a property of torch._C.TensorBase, but got ",
              property ? Py_TYPE(property)->tp_name : "none", "; use a supported release");
  PyGetSetDef* def = reinterpret_cast<PyGetSetDescrObject*>(property)->d_getset;
  stock_tensor_dtype = def->get;
  def->get = &tensor_dtype; // in place: Tensor.dtype stays the same object
}

void patch_dtype(PyObject* reduce) {
  python_reduce = Py_NewRef(reduce);
  add_property<format_of_dtype>(&THPDtypeType, "is_floating_point",
                                [](const FormatEntry&) { return Py_NewRef(Py_True); });
  add_property<format_of_dtype>(&THPDtypeType, "is_complex",
                                [](const FormatEntry&) { return Py_NewRef(Py_False); });
  add_property<format_of_dtype>(&THPDtypeType, "is_signed", [](const FormatEntry& e) {
    return PyBool_FromLong(e.format.is_signed);
  });
  add_property<format_of_dtype>(&THPDtypeType, "itemsize", [](const FormatEntry& e) {
    return PyLong_FromLong(e.format.itemsize());
  });
  if (at::formats::kDtypesHaveShortNames) {
    add_property<format_of_dtype>(&THPDtypeType, "abbr", [](const FormatEntry& e) {
      return PyUnicode_FromString(e.name.c_str());
    });
  }
  stock_reduce = replace_method("__reduce__", &dtype_reduce);
  stock_to_real = replace_method("to_real", &dtype_to_real);
  stock_to_complex = replace_method("to_complex", &dtype_to_complex);
}

} // namespace torch::formats
