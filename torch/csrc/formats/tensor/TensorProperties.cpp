// Assignments to Tensor.data and Tensor.grad, and calls of torch.Tensor. Reaches into: the getset
// table of torch._C.TensorBase (writable), in place, so that the properties stay the same objects;
// the slot tp_new of that class and of classes that have inherited it.
#include <torch/csrc/formats/tensor/TensorProperties.h>

#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/gradients/EngineGradients.h>
#include <torch/csrc/formats/hooks/Trampolines.h>
#include <torch/csrc/formats/tensor/TensorBody.h>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>

#include <utility>

namespace torch::formats {
int seen_by_torch_function(PyObject* self) {
  THPObjectPtr module(PyImport_ImportModule("torch._C"));
  if (!module) return -1;
  THPObjectPtr seen(PyObject_CallMethod(module.get(), "_has_torch_function_unary", "O", self));
  return seen ? PyObject_IsTrue(seen.get()) : -1;
}

namespace {

setter stock_set_data = nullptr;
setter stock_set_grad = nullptr;
PyObject* python_set_data = nullptr;

// A stock tensor cannot become a format tensor in its old body, nor the reverse. The Python
// implementation gives it a new one.
int set_data(PyObject* self, PyObject* data, void* closure) {
  if (!data || !THPVariable_Check(data)) return stock_set_data(self, data, closure);
  if ((format_of_tensor(self) != nullptr) == (format_of_tensor(data) != nullptr)) {
    remember_accumulators(self, data);
    return stock_set_data(self, data, closure);
  }
  PyObject* done = PyObject_CallFunctionObjArgs(python_set_data, self, data, nullptr);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

getter stock_get_grad_dtype = nullptr;
setter stock_set_grad_dtype = nullptr;

// Returns the dtype to which gradients are cast. For a format dtype the record has the storage
// dtype, and the engine is told that any dtype will do.
PyObject* get_grad_dtype(PyObject* self, void* closure) {
  PyObject* stock = stock_get_grad_dtype(self, closure);
  const c10::formats::FormatEntry* entry = format_of_tensor(self);
  if (stock != Py_None || !entry ||
      recorded_grad_dtype(THPVariable_Unpack(self)) != entry->container)
    return stock;
  Py_DECREF(stock);
  return new_dtype_reference(*entry);
}

// Returns whether a gradient may be assigned. PyTorch compares storage dtypes. A stock gradient
// must have the dtype in `grad_dtype`, if any is set there, or the tensor's own dtype.
bool takes_grad(PyObject* self, PyObject* grad) {
  const bool alike = format_of_tensor(self) == format_of_tensor(grad);
  // PyTorch decides about two stock tensors.
  if (alike && (!format_of_tensor(self) || !stock_get_grad_dtype)) return true;
  // Releases without the property.
  if (!stock_get_grad_dtype || (!alike && format_of_tensor(grad))) return false;
  // An operator's result has no such property.
  if (!THPVariable_Unpack(self).is_leaf()) return alike;
  PyObject* asked = get_grad_dtype(self, nullptr);
  PyObject* given = PyObject_GetAttrString(grad, "dtype");
  const bool takes = asked && given && (asked == Py_None || asked == given);
  PyErr_Clear(); // the caller raises an error with the two dtypes
  Py_XDECREF(asked);
  Py_XDECREF(given);
  return takes;
}

int set_grad(PyObject* self, PyObject* grad, void* closure) {
  if (grad && THPVariable_Check(grad) && !takes_grad(self, grad)) {
    PyObject* own = PyObject_GetAttrString(self, "dtype");
    PyObject* other = PyObject_GetAttrString(grad, "dtype");
    PyObject* asked = stock_get_grad_dtype ? get_grad_dtype(self, nullptr) : nullptr;
    const bool by_property = asked && asked != Py_None && asked != own;
    const char* text = by_property
        ? "expected a gradient of grad_dtype, %R, but got %R; convert it with .to()"
        : "expected a gradient of the tensor's own dtype, %R, but got %R; convert it with .to()";
    if (own && other) PyErr_Format(PyExc_RuntimeError, text, by_property ? asked : own, other);
    Py_XDECREF(asked);
    Py_XDECREF(own);
    Py_XDECREF(other);
    return -1;
  }
  return stock_set_grad(self, grad, closure);
}

int set_grad_dtype(PyObject* self, PyObject* dtype, void* closure) {
  const int seen = seen_by_torch_function(self);
  if (seen < 0) return -1;
  // A mode or subclass must see the user's dtype, and comes back here with it.
  if (seen > 0) return stock_set_grad_dtype(self, dtype, closure);
  const c10::formats::FormatEntry *own = format_of_tensor(self),
                                  *asked = dtype ? format_of_dtype(dtype) : nullptr;
  PyObject* container =
      own ? reinterpret_cast<PyObject*>(torch::getTHPDtype(own->container)) : nullptr;
  if (asked && asked == own) {
    const at::Tensor& tensor = THPVariable_Unpack(self);
    // PyTorch would set the storage dtype in an existing graph.
    if (tensor.is_leaf() && recorded_grad_dtype(tensor) == own->container) return 0;
    return stock_set_grad_dtype(self, container, closure);
  }
  if (asked || (own && dtype == container)) {
    PyObject* name = PyObject_GetAttrString(self, "dtype");
    if (name)
      PyErr_Format(PyExc_TypeError,
                   "grad_dtype: expected %R, None or a stock dtype other than the storage dtype, "
                   "but got %R",
                   name, dtype);
    Py_XDECREF(name);
    return -1;
  }
  return stock_set_grad_dtype(self, dtype, closure);
}

PyTypeObject* tensor_base() {
  return reinterpret_cast<PyTypeObject*>(THPVariableClass)->tp_base;
}

PyGetSetDef& property(const char* name) {
  PyObject* property = PyDict_GetItemString(tensor_base()->tp_dict, name);
  TORCH_CHECK(property && Py_TYPE(property) == &PyGetSetDescr_Type, "expected torch._C.TensorBase.",
              name, " to be a property, but got ", property ? Py_TYPE(property)->tp_name : "none",
              "; use a supported release");
  return *reinterpret_cast<PyGetSetDescrObject*>(property)->d_getset;
}

newfunc stock_tensor_new = nullptr;
PyObject* python_new = nullptr;

// torch.Tensor(...) and its subclasses make tensors of the default dtype. From a tensor they make
// an alias, of any dtype.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyTypeObject* plain = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  const bool alias = PyTuple_GET_SIZE(args) == 1 && THPVariable_Check(PyTuple_GET_ITEM(args, 0));
  if (alias || !default_dtype_object() || !PyType_IsSubtype(type, plain))
    return stock_tensor_new(type, args, kwargs);
  THPObjectPtr tensor(PyObject_Call(python_new, args, kwargs));
  if (!tensor || type == plain) return tensor.release();
  return PyObject_CallMethod(tensor.get(), "as_subclass", "O", type);
}

// A class made by a class statement has a copy of its base's slot.
void patch_new(PyTypeObject* type) {
  if (type->tp_new == stock_tensor_new) type->tp_new = &tensor_new;
  THPObjectPtr subclasses(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(type), "__subclasses__", nullptr));
  if (!subclasses) throw python_error();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(subclasses.get()); ++i) {
    patch_new(reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(subclasses.get(), i)));
  }
}

} // namespace

void patch_data(PyObject* implementation) {
  python_set_data = Py_NewRef(implementation);
  stock_set_data = property("data").set;
  property("data").set = &set_data;
}

void patch_grad() {
  stock_set_grad = property("grad").set;
  property("grad").set = &set_grad;
  property("_grad").set = &set_grad;
}

void patch_grad_dtype() {
  PyGetSetDef& def = property("grad_dtype");
  stock_get_grad_dtype = std::exchange(def.get, &get_grad_dtype);
  stock_set_grad_dtype = std::exchange(def.set, &set_grad_dtype);
}

void patch_tensor_new(PyObject* implementation) {
  python_new = Py_NewRef(implementation);
  stock_tensor_new = tensor_base()->tp_new;
  patch_new(tensor_base());
}

} // namespace torch::formats
