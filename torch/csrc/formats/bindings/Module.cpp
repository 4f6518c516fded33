// The extension module torch_dtypes._C for a stock PyTorch: the common bindings, and the hooks.
// (Inside PyTorch's tree: intree/Module.cpp.)
#include <torch/csrc/formats/bindings/AccumulationBindings.h>
#include <torch/csrc/formats/bindings/Arguments.h>
#include <torch/csrc/formats/bindings/Bindings.h>
#include <torch/csrc/formats/bindings/Observing.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/dtype/DtypeTable.h>
#include <torch/csrc/formats/hooks/FormatSearch.h>
#include <torch/csrc/formats/hooks/OperatorCall.h>
#include <torch/csrc/formats/hooks/Patches.h>
#include <torch/csrc/formats/hooks/PythonDepth.h>
#include <torch/csrc/formats/hooks/Trampolines.h>
#include <torch/csrc/formats/tensor/TensorBody.h>
#include <torch/csrc/formats/tensor/Wrappers.h>

#include <ATen/autocast_mode.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <ATen/native/formats/operators/boxed/Boxed.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/casts/AutocastCasts.h>
#include <ATen/native/formats/overlay/Autocast.h>
#include <c10/formats/BuiltinFormats.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using c10::formats::Format;
using c10::formats::FormatEntry;

PyObject* room_maker = nullptr;

// Calls the room maker in Python, and returns true if it made room.
bool make_room() {
  const py::gil_scoped_acquire acquired;
  return py::reinterpret_borrow<py::function>(room_maker)().cast<bool>();
}

// Returns the names of run-time formats that have a number and need not keep it.
std::vector<std::string> formats_at_run_time() {
  std::vector<std::string> names;
  for (const FormatEntry* entry : c10::formats::numbered_formats()) {
    Format plain = entry->format;
    if (c10::formats::builtin_of(plain) == c10::formats::Builtin::kNone && !entry->keeps)
      names.push_back(entry->name);
  }
  return names;
}

// Frees a format's number and returns None. If its dtype is in use, or keeps its number, returns
// the dtype.
py::object retire(const std::string& name) {
  for (const FormatEntry* entry : c10::formats::numbered_formats()) {
    if (entry->name == name && !retire_dtype(*entry))
      return py::reinterpret_borrow<py::object>(dtype_object(*entry));
  }
  return py::none();
}

// Returns When as an enum.IntFlag.
py::object when_flags() {
  py::list members;
#define MEMBER(name, python, bit, meaning) \
  members.append(py::make_tuple(#python, static_cast<int>(When::name)));
  TORCH_DTYPES_FORALL_WHEN(MEMBER)
#undef MEMBER
  py::object flags = py::module_::import("enum").attr("IntFlag")(
      "When", members, py::arg("module") = "torch_dtypes._C");
#define MEANING(name, python, bit, meaning) flags.attr(#python).attr("meaning") = meaning;
  TORCH_DTYPES_FORALL_WHEN(MEANING)
#undef MEANING
  return flags;
}

PyMethodDef raw_functions[] = {
    {"format_in", &format_in, METH_O,
     "Return the name of a number format anywhere in a value, or None. Runs no code of the value's "
     "class."},
    {"format_in_tensors", &format_in_tensors, METH_O,
     "Return the name of a number format of a tensor in a value, or None; dtypes do not count."},
    {"set_searched_classes", &set_searched_classes, METH_VARARGS,
     "set_searched_classes(Module, Optimizer, partial): set the classes that format_in looks "
     "into."},
    {"exchange_bodies", &exchange_bodies, METH_VARARGS,
     "exchange_bodies(tensor, other): exchange their data; the first keeps its autograd record."},
    {"without_memory", &without_memory, METH_VARARGS,
     "without_memory(dtype, sizes, strides, device): make the body of a wrapper of format "
     "tensors."},
    {"set_wrapper_cast", &set_wrapper_cast, METH_O,
     "set_wrapper_cast(cast): cast(wrapper, dtype) casts a wrapper's tensor, or returns None."},
    {"hook", &hook_builtin, METH_VARARGS,
     "hook(builtin, implementation, when): put an implementation in front of a stock builtin."},
    {"call_operator", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_operator)),
     METH_FASTCALL,
     "call_operator(op, function, args, kwargs): call an operator of torch.ops, where a stock "
     "dtype beside a format tensor keeps its meaning."},
    {"set_default_format", &set_default_format, METH_O,
     "Make a format dtype the default dtype, or None: the stock default holds."},
    {"get_default_format", &get_default_format, METH_NOARGS,
     "Return the default dtype if it is a format dtype, else None."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace
} // namespace torch::formats

PYBIND11_MODULE(_C, m) {
  using namespace torch::formats;
  namespace f = c10::formats;
  m.doc() = "The native part of torch_dtypes. Private: use torch_dtypes.";
  bind_formats(m);
  m.def("set_room_maker", [](const py::function& callable) {
    Py_XSETREF(room_maker, Py_NewRef(callable.ptr()));
    f::set_room_maker(&make_room);
  });
  m.def("formats_at_run_time", &formats_at_run_time);
  m.def("retire", &retire);
  m.def(
      "autocast_dtype",
      [](const std::string& device_type) -> py::object {
        const c10::DeviceType device = c10::Device(device_type).type();
        if (!at::formats::autocast_has_format(device)) return py::none();
        return py::reinterpret_borrow<py::object>(
            dtype_object(c10::formats::format_entry(at::autocast::get_autocast_dtype(device))));
      },
      py::arg("device_type"));
  m.def("set_autocast_cache", &at::formats::set_autocast_cache);
  m.def("autocast_cache", &at::formats::autocast_cache);
  m.def("clear_autocast_casts", &at::formats::clear_autocast_casts);
  m.def("install_patches", [](py::dict implementations) {
    install_patches(implementations.ptr());
    at::formats::set_python_depth(&python_depth);
    return at::formats::register_boxed_kernels();
  });
  m.def("patches", [] { return py::reinterpret_steal<py::list>(list_patches()); });
  m.attr("When") = when_flags();
  m.def("gradient_of_dtype", [](py::handle gradient, py::handle dtype) {
    if (!THPDtype_Check(dtype.ptr())) throw py::type_error("expected a dtype");
    const at::Tensor& given = expect_tensor(gradient);
    const at::Tensor cast = at::formats::gradient_of_dtype(
        given, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
    return cast.is_same(given) ? py::reinterpret_borrow<py::object>(gradient) : wrap(cast);
  });
  bind_accumulation(m);
  bind_numerics(m);
  m.def("zero_is_code_zero", [](py::handle dtype) {
    return at::formats::zero_is_code_zero(expect_format(dtype).format);
  });
  m.def("meant_dtype", [](py::handle asked, py::handle own) {
    if (!THPDtype_Check(asked.ptr())) throw py::type_error("expected a dtype");
    const auto* format = at::formats::requested_format(
        reinterpret_cast<THPDtype*>(asked.ptr())->scalar_type, expect_format(own));
    return py::reinterpret_borrow<py::object>(format ? dtype_object(*format) : asked.ptr());
  });
  bind_observing(m);
  if (PyModule_AddFunctions(m.ptr(), raw_functions) < 0) throw py::error_already_set();
}
