// DLPack's C exchange API refuses format tensors, which it would describe by their storage dtype.
// Other libraries read its function table at torch.Tensor.__dlpack_c_exchange_api__ once, and then
// call it without Python. Reaches into: that table (writable memory), in place.
#include <torch/csrc/formats/tensor/DlpackExchange.h>

#include <ATen/dlpack.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/utils/object_ptr.h>

namespace torch::formats {
namespace {

DLPackManagedTensorFromPyObjectNoSync stock_managed = nullptr;
DLPackDLTensorFromPyObjectNoSync stock_borrowed = nullptr;

bool refuse(void* object) {
  const auto* entry = format_of_tensor(static_cast<PyObject*>(object));
  if (!entry) return false;
  PyErr_Format(PyExc_BufferError,
               "expected a dtype that DLPack has a type for, but got torch.%s; export "
               "torch_dtypes.codes(x) for the codes, or x.float() for the values",
               entry->name.c_str());
  return true;
}

int managed_tensor(void* object, DLManagedTensorVersioned** out) {
  return refuse(object) ? -1 : stock_managed(object, out);
}

int borrowed_tensor(void* object, DLTensor* out) {
  return refuse(object) ? -1 : stock_borrowed(object, out);
}

} // namespace

void patch_dlpack_exchange() {
  THPObjectPtr capsule(PyObject_GetAttrString(THPVariableClass, "__dlpack_c_exchange_api__"));
  auto* api = capsule
      ? static_cast<DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"))
      : nullptr;
  if (!api) throw python_error();
  TORCH_CHECK(api->header.version.major == DLPACK_MAJOR_VERSION &&
                  api->managed_tensor_from_py_object_no_sync,
              "expected version ", DLPACK_MAJOR_VERSION, " of DLPack's exchange API, but got ",
              api->header.version.major, "; use a supported release");
  stock_managed = api->managed_tensor_from_py_object_no_sync;
  api->managed_tensor_from_py_object_no_sync = &managed_tensor;
  if (!api->dltensor_from_py_object_no_sync) return;
  stock_borrowed = api->dltensor_from_py_object_no_sync;
  api->dltensor_from_py_object_no_sync = &borrowed_tensor;
}

} // namespace torch::formats
