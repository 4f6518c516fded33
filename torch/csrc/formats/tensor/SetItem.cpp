// x[index] = number for a format tensor. PyTorch makes a tensor of the storage dtype from the
// number, which rounds it before. Reaches into: the slot mp_ass_subscript of torch._C.TensorBase
// and of classes that have inherited it, and the wrapper behind TensorBase.__setitem__.
#include <torch/csrc/formats/tensor/SetItem.h>

#include <ATen/FormatTensor.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_numbers.h>
#include <torch/csrc/utils/python_symnode.h>

namespace torch::formats {
namespace {

objobjargproc stock_setitem = nullptr;

// Returns a tensor of the format without dimensions, or nullptr with a Python error.
PyObject* number_as_tensor(PyObject* number, const c10::formats::FormatEntry& entry) {
  HANDLE_TH_ERRORS
  // torch.func would wrap a factory's result.
  const c10::impl::ExcludeDispatchKeyGuard unwrapped(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
  at::Tensor exact;
  if (PyFloat_Check(number)) {
    exact = at::scalar_tensor(at::formats::fill_number(PyFloat_AS_DOUBLE(number), entry),
                              at::TensorOptions().dtype(at::kDouble));
  } else {
    const long long value = PyLong_AsLongLong(number); // of a bool, too
    if (value == -1 && PyErr_Occurred()) throw python_error();
    exact = at::scalar_tensor(static_cast<int64_t>(value), at::TensorOptions().dtype(at::kLong));
  }
  return THPVariable_Wrap(at::formats::encoded(exact, entry));
  END_HANDLE_TH_ERRORS
}

// Returns whether PyTorch accepts a value as an item: numbers, tensors, and numbers of a graph.
bool is_item(PyObject* value) {
  return PyFloat_Check(value) || PyLong_Check(value) || PyComplex_Check(value) ||
      is_tensor(value) || THPUtils_checkLong(value) || torch::is_symint(value) ||
      torch::is_symfloat(value) || torch::is_symbool(value);
}

// Replaces PyTorch's error for other values, which names the storage dtype.
int raise_for_item(PyObject* self, PyObject* value) {
  const c10::formats::FormatEntry* entry =
      value && PyErr_ExceptionMatches(PyExc_TypeError) ? format_of_tensor(self) : nullptr;
  if (!entry || is_item(value)) return -1;
  PyErr_Format(PyExc_TypeError,
               "expected a number or a tensor for elements of a tensor of torch.%s, but got a %s; "
               "make a tensor of it first, for example with torch.tensor(...)",
               entry->name.c_str(), Py_TYPE(value)->tp_name);
  return -1;
}

int setitem(PyObject* self, PyObject* index, PyObject* value) {
  const c10::formats::FormatEntry* entry =
      value && (PyFloat_Check(value) || PyLong_Check(value)) ? format_of_tensor(self) : nullptr;
  if (!entry || THPVariable_Unpack(self).device().is_meta())
    return stock_setitem(self, index, value) == 0 ? 0 : raise_for_item(self, value);
  THPObjectPtr tensor(number_as_tensor(value, *entry));
  return tensor ? stock_setitem(self, index, tensor.get()) : -1;
}

void patch_slots(PyTypeObject* type) {
  if (type->tp_as_mapping && type->tp_as_mapping->mp_ass_subscript == stock_setitem)
    type->tp_as_mapping->mp_ass_subscript = &setitem;
  THPObjectPtr subclasses(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(type), "__subclasses__", nullptr));
  if (!subclasses) throw python_error();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(subclasses.get()); ++i) {
    patch_slots(reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(subclasses.get(), i)));
  }
}

} // namespace

void patch_setitem() {
  PyTypeObject* base = reinterpret_cast<PyTypeObject*>(THPVariableClass)->tp_base;
  TORCH_CHECK(base->tp_as_mapping && base->tp_as_mapping->mp_ass_subscript,
              "expected torch._C.TensorBase to assign items, but got no slot; use a supported "
              "release");
  stock_setitem = base->tp_as_mapping->mp_ass_subscript;
  patch_slots(base);
  PyObject* wrapper = PyDict_GetItemString(base->tp_dict, "__setitem__");
  if (wrapper && Py_TYPE(wrapper) == &PyWrapperDescr_Type) {
    reinterpret_cast<PyWrapperDescrObject*>(wrapper)->d_wrapped = reinterpret_cast<void*>(&setitem);
  }
}

} // namespace torch::formats
