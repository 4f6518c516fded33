#include <torch/csrc/formats/tensor/Wrappers.h>

#include <ATen/native/formats/operators/casts/WrapperCast.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>

#include <ATen/FormatWrapper.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>

namespace torch::formats {
namespace {

PyObject* python_cast = nullptr;

// Casts a wrapper by Python. The caller hides the number of a format dtype from Python. The calls
// inside may be visible to it, as of pending collectives.
at::Tensor cast_by_python(const at::Tensor& wrapper, c10::ScalarType dtype) {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  keys.excluded_ = keys.excluded_ -
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});
  const c10::impl::ForceDispatchKeyGuard visible(keys);
  const pybind11::gil_scoped_acquire gil;
  PyObject* asked = c10::formats::is_format_type(dtype)
      ? dtype_object(c10::formats::format_entry(dtype))
      : reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype));
  THPObjectPtr object(THPVariable_Wrap(wrapper));
  THPObjectPtr cast(object ? PyObject_CallFunctionObjArgs(python_cast, object.get(), asked, nullptr)
                           : nullptr);
  if (!cast) throw python_error();
  return cast.get() == Py_None ? at::Tensor() : THPVariable_Unpack(cast.get());
}

} // namespace

PyObject* without_memory(PyObject*, PyObject* args) {
  HANDLE_TH_ERRORS
  PyObject *dtype = nullptr, *sizes = nullptr, *strides = nullptr, *device = nullptr;
  if (!PyArg_ParseTuple(args, "OOOO", &dtype, &sizes, &strides, &device)) return nullptr;
  const c10::formats::FormatEntry* entry = format_of_dtype(dtype);
  TORCH_CHECK_TYPE(entry, "expected a dtype of a number format, but got another object");
  const auto numbers = [](PyObject* of) {
    return pybind11::cast<std::vector<int64_t>>(pybind11::handle(of));
  };
  return THPVariable_Wrap(
      at::formats::format_without_memory(numbers(sizes), numbers(strides), *entry,
                                         pybind11::cast<c10::Device>(pybind11::handle(device))));
  END_HANDLE_TH_ERRORS
}

PyObject* set_wrapper_cast(PyObject*, PyObject* cast) {
  Py_XSETREF(python_cast, Py_NewRef(cast));
  at::formats::set_wrapper_cast(&cast_by_python);
  Py_RETURN_NONE;
}

} // namespace torch::formats
