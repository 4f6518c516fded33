#include <torch/csrc/formats/dtype/DtypeObject.h>

#include <ATen/FormatTensor.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

namespace torch::formats {

using c10::formats::FormatEntry;

const FormatEntry* format_of_dtype(PyObject* object) {
  if (!object || !THPDtype_Check(object)) return nullptr;
  const auto type = reinterpret_cast<THPDtype*>(object)->scalar_type;
  return c10::formats::is_format_type(type) ? &c10::formats::format_entry(type) : nullptr;
}

bool is_tensor(PyObject* object) {
  static PyTypeObject* const base = reinterpret_cast<PyTypeObject*>(THPVariableClass)->tp_base;
  return Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(THPVariableClass) ||
      PyType_IsSubtype(Py_TYPE(object), base);
}

const FormatEntry* format_of_tensor(PyObject* object) {
  if (!object || !is_tensor(object)) return nullptr;
  return at::formats::entry_beneath(THPVariable_Unpack(object));
}

} // namespace torch::formats
