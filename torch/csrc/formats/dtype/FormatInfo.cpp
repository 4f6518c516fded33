// torch.finfo of a number format. Reaches into: the slots tp_new, tp_dealloc, tp_repr and tp_str
// and the dictionary of the static type torch.finfo.
#include <torch/csrc/formats/dtype/FormatInfo.h>

#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/dtype/DtypePatches.h>
#include <torch/csrc/formats/hooks/Trampolines.h>

#include <c10/formats/FormatLimits.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/TypeInfo.h>

#include <sstream>

namespace torch::formats {
namespace {

using c10::formats::epsilon;
using c10::formats::Format;
using c10::formats::FormatEntry;
using c10::formats::largest;
using c10::formats::lowest;
using c10::formats::resolution;
using c10::formats::smallest_normal;

const FormatEntry* entry_of(PyObject* self) {
  const auto type = reinterpret_cast<THPDTypeInfo*>(self)->type;
  return c10::formats::is_format_type(type) ? &c10::formats::format_entry(type) : nullptr;
}

newfunc stock_finfo_new = nullptr;
reprfunc stock_repr = nullptr;
destructor stock_dealloc = nullptr;

PyObject* finfo_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* asked = kwargs ? PyDict_GetItemString(kwargs, "type") : nullptr;
  if (PyTuple_GET_SIZE(args) == 1) asked = PyTuple_GET_ITEM(args, 0);
  const bool given = PyTuple_GET_SIZE(args) > 0 || (kwargs && PyDict_GET_SIZE(kwargs) > 0);
  const FormatEntry* entry = format_of_dtype(given ? asked : default_dtype_object());
  if (!entry) return stock_finfo_new(type, args, kwargs);
  PyObject* self = type->tp_alloc(type, 0);
  if (self) {
    reinterpret_cast<THPDTypeInfo*>(self)->type = c10::formats::scalar_type(*entry);
    // finfo stores the format's number, which is valid while the dtype exists.
    Py_INCREF(dtype_object(*entry));
  }
  return self;
}

void finfo_dealloc(PyObject* self) {
  if (const FormatEntry* entry = entry_of(self)) Py_DECREF(dtype_object(*entry));
  stock_dealloc(self);
}

PyObject* finfo_repr(PyObject* self) {
  const FormatEntry* entry = entry_of(self);
  if (!entry) return stock_repr(self);
  const Format& f = entry->format;
  std::ostringstream text;
  text << "finfo(resolution=" << resolution(f) << ", min=" << lowest(f) << ", max=" << largest(f)
       << ", eps=" << epsilon(f) << ", smallest_normal=" << smallest_normal(f)
       << ", tiny=" << smallest_normal(f) << ", dtype=" << entry->name << ")";
  return PyUnicode_FromString(text.str().c_str());
}

} // namespace

void patch_finfo() {
  stock_finfo_new = THPFInfoType.tp_new;
  stock_repr = THPFInfoType.tp_repr;
  stock_dealloc = THPFInfoType.tp_dealloc;
  THPFInfoType.tp_new = &finfo_new;
  THPFInfoType.tp_dealloc = &finfo_dealloc;
  THPFInfoType.tp_repr = &finfo_repr;
  THPFInfoType.tp_str = &finfo_repr;
  // As PyTorch documents, the size of an element in memory; format_of(D).bits is the width of a
  // code.
  add_property<entry_of>(&THPFInfoType, "bits", [](const FormatEntry& e) {
    return PyLong_FromLong(8 * e.format.itemsize());
  });
  add_property<entry_of>(&THPFInfoType, "eps", [](const FormatEntry& e) {
    return PyFloat_FromDouble(epsilon(e.format));
  });
  add_property<entry_of>(&THPFInfoType, "max", [](const FormatEntry& e) {
    return PyFloat_FromDouble(largest(e.format));
  });
  add_property<entry_of>(&THPFInfoType, "min",
                         [](const FormatEntry& e) { return PyFloat_FromDouble(lowest(e.format)); });
  add_property<entry_of>(&THPFInfoType, "smallest_normal", [](const FormatEntry& e) {
    return PyFloat_FromDouble(smallest_normal(e.format));
  });
  add_property<entry_of>(&THPFInfoType, "tiny", [](const FormatEntry& e) {
    return PyFloat_FromDouble(smallest_normal(e.format));
  });
  add_property<entry_of>(&THPFInfoType, "resolution", [](const FormatEntry& e) {
    return PyFloat_FromDouble(resolution(e.format));
  });
  add_property<entry_of>(&THPFInfoType, "dtype",
                         [](const FormatEntry& e) { return PyUnicode_FromString(e.name.c_str()); });
  PyType_Modified(&THPFInfoType);
}

} // namespace torch::formats
