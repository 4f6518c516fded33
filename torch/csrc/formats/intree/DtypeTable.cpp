// The dtype objects of formats inside PyTorch's own tree, which keeps them by number
// (DynamicTypes.cpp). Built-in formats have theirs from the start, a run-time format from its first
// use. Such a number is never freed.
#include <torch/csrc/formats/dtype/DtypeObject.h>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>

#include <bitset>

namespace torch::formats {

using c10::formats::FormatEntry;

static std::bitset<c10::formats::kMaxFormats> announced; // by the entry's id; guarded by the GIL
static PyObject* announcer = nullptr;

PyObject* dtype_object(const FormatEntry& entry) {
  auto* const dtype =
      reinterpret_cast<PyObject*>(torch::getTHPDtype(c10::formats::scalar_type(entry)));
  if (announcer && entry.id >= c10::formats::kBuiltins && !announced[entry.id]) {
    announced[entry.id] = true;
    if (!THPObjectPtr(PyObject_CallFunctionObjArgs(announcer, dtype, nullptr)))
      throw python_error();
  }
  return dtype;
}

void set_announcer(PyObject* callable) {
  Py_XINCREF(callable);
  Py_XSETREF(announcer, callable);
}

} // namespace torch::formats
