// The dtype objects of formats by number, for a stock PyTorch. Reaches into: THPDtype_New
// (exported), torch.utils._dtype_abbrs.dtype_abbrs (a dictionary).
#include <torch/csrc/formats/dtype/DtypeTable.h>

#include <ATen/autocast_mode.h>
#include <ATen/native/formats/overlay/Autocast.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/utils/object_ptr.h>

#include <array>

namespace torch::formats {

using c10::formats::FormatEntry;

// Listings of graphs, checkpoints and debug modes look up every dtype in a dictionary of short
// names.
static void add_short_name(PyObject* dtype, const std::string& name) {
  THPObjectPtr module(PyImport_ImportModule("torch.utils._dtype_abbrs"));
  THPObjectPtr names(module ? PyObject_GetAttrString(module.get(), "dtype_abbrs") : nullptr);
  THPObjectPtr text(PyUnicode_FromString(name.c_str()));
  if (!names || !text || PyDict_SetItem(names.get(), dtype, text.get()) < 0) throw python_error();
}

static std::array<PyObject*, c10::formats::kMaxFormats> objects{}; // by number; guarded by the GIL
static PyObject* announcer = nullptr;

PyObject* dtype_object(const FormatEntry& entry) {
  int id = entry.id.load(std::memory_order_relaxed);
  if (id < 0) id = c10::formats::number_of_format(entry);
  if (!objects[id]) {
    objects[id] = THPDtype_New(c10::formats::scalar_type(entry), entry.name);
    add_short_name(objects[id], entry.name);
    if (announcer && !THPObjectPtr(PyObject_CallOneArg(announcer, objects[id])))
      throw python_error();
  }
  return objects[id];
}

void set_announcer(PyObject* callable) {
  Py_XSETREF(announcer, Py_NewRef(callable));
}

bool retire_dtype(const FormatEntry& entry) {
  const int id = entry.id.load(std::memory_order_relaxed);
  if (id < 0 || entry.keeps.load(std::memory_order_relaxed)) return false;
  for (const c10::DeviceType device : at::formats::kAutocastDevices) {
    if (at::autocast::get_autocast_dtype(device) == c10::formats::scalar_type(entry)) return false;
  }
  if (objects[id] && Py_REFCNT(objects[id]) != 1) return false;
  // The object is not freed: torch may remember it by its address, where no other may then be.
  objects[id] = nullptr;
  c10::formats::give_number_back(entry);
  return true;
}

} // namespace torch::formats
