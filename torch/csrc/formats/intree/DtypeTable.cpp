// The dtype objects of formats inside PyTorch's own tree. PyTorch makes those of the built-in formats and finds all of them by their numbers; the
// object of a format made at run time is made when it is first asked for. Such a number is never given back.
#include <torch/csrc/formats/DtypeObject.h>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>

#include <bitset>

namespace torch::formats {

using c10::formats::FormatEntry;

static std::bitset<c10::formats::kMaxFormats> made; // by the entry's id; guarded by the GIL
static PyObject* announcer = nullptr;

PyObject* dtype_object(const FormatEntry& entry) {
  const c10::ScalarType type = c10::formats::scalar_type(entry);
  if (entry.id >= c10::formats::kBuiltins && !made[entry.id]) {
    PyObject* dtype = THPDtype_New(type, entry.name);
    if (!dtype) throw python_error();
    torch::registerDtypeObject(reinterpret_cast<THPDtype*>(dtype), type);
    made[entry.id] = true;
    if (announcer && !THPObjectPtr(PyObject_CallFunctionObjArgs(announcer, dtype, nullptr))) throw python_error();
  }
  return reinterpret_cast<PyObject*>(torch::getTHPDtype(type));
}

void set_announcer(PyObject* callable) {
  Py_XINCREF(callable);
  Py_XSETREF(announcer, callable);
}

} // namespace torch::formats
