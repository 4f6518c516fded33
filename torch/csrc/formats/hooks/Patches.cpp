#include <torch/csrc/formats/hooks/Patches.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/formats/dtype/DtypePatches.h>
#include <torch/csrc/formats/dtype/FormatInfo.h>
#include <torch/csrc/formats/gradients/EngineGradients.h>
#include <torch/csrc/formats/gradients/GradientHooks.h>
#include <torch/csrc/formats/hooks/OperatorCall.h>
#include <torch/csrc/formats/tensor/DlpackExchange.h>
#include <torch/csrc/formats/tensor/SetItem.h>
#include <torch/csrc/formats/tensor/TensorProperties.h>
#include <torch/csrc/utils/object_ptr.h>

namespace torch::formats {
namespace {

using Install = void (*)();
using InstallWith = void (*)(PyObject* implementation);

// The columns of a Hook in torch_dtypes/host/table.py. Every row here is installed at load.
struct Patch {
  const char* target;
  const char* how;
  const char* why;
  const char* file;
  Install install = nullptr;          // nullptr for both: reached into when it is used
  // With the function of torch_dtypes/host/hooks that `runs` names.
  InstallWith install_with = nullptr;
  const char* runs = nullptr;         // "module:function"
  // The releases of PyTorch on which the row was installed and its tests ran (README.md).
  const char* first = "2.11";
  const char* last = "2.15";
};

const Patch kPatches[] = {
    {"torch.dtype",
     "`THPDtype_New`, exported; descriptors and methods in the static type's dictionary (its own "
     "table is read-only)",
     "`is_floating_point`, `itemsize`, `abbr`, `to_real`, `__reduce__`, ... of ours",
     "DtypePatches.cpp", nullptr, &patch_dtype, "serialization:reduce_dtype"},
    {"torch.utils._dtype_abbrs.dtype_abbrs", "entries",
     "listings of graphs, checkpoints and debug modes look every dtype up there", "DtypeTable.cpp"},
    {"Tensor.dtype",
     "the getset table of `TensorBase`, writable, in place: the property stays the same object",
     "our dtype, not the container", "DtypePatches.cpp", &patch_tensor_dtype},
    {"torch.finfo", "its slots `tp_new`, `tp_repr`, `tp_str` and its dictionary",
     "the limits of ours", "FormatInfo.cpp", &patch_finfo},
    {"Tensor.__setitem__",
     "the slot `mp_ass_subscript` of `TensorBase` and of classes that have inherited it",
     "`x[i] = 1.3`: stock would make the number a tensor of the container, which rounds it to that",
     "SetItem.cpp", &patch_setitem},
    {"Tensor.data", "the setter in the getset table of `TensorBase`",
     "stock cannot become ours in its old body, nor the other way round: `.data =` and so "
     "`model.to(dtype)` give the tensor a new one",
     "TensorProperties.cpp", nullptr, &patch_data, "conversion:set_data"},
    {"a tensor's body",
     "`cdata` of the Python object and the `PyObjectSlot` of both bodies change places; autograd's "
     "record (`TensorImpl::autograd_meta_`, hooks, "
     "gradient, "
     "version) goes along; `AccumulateGrad::variable` of older graphs is turned to the new body",
     "the Python object stays the same when its dtype crosses the border; in place nothing can be "
     "refused half way",
     "TensorBody.cpp"},
    {"Tensor.grad", "the setters `grad` and `_grad` in the getset table of `TensorBase`",
     "a gradient of another dtype is an error; stock compares containers", "TensorProperties.cpp",
     &patch_grad},
    {"Tensor.grad_dtype", "the getset table of `TensorBase`",
     "our dtype where stock means the container", "TensorProperties.cpp", &patch_grad_dtype},
    {"torch.Tensor", "the slot `tp_new`", "`torch.Tensor(...)` while the default dtype is ours",
     "TensorProperties.cpp", nullptr, &patch_tensor_new, "from_data:legacy_tensor"},
    {"hooks of tensors, nodes and modules",
     "the calls in the virtual tables of `PyFunctionTensorPreHook`, `PyFunctionPreHook` and "
     "`PyFunctionPostHook`",
     "what a hook returns has the dtype of what it was given; stock checks by the container",
     "GradientHooks.cpp", &patch_gradient_hooks},
    {"gradients of another dtype",
     "`VariableHooks::grad_dtype` and `AccumulateGrad::apply`, in their virtual tables",
     "the engine would cast what a C++ function returns to the container: it is handed on as it "
     "is, and cast once, by the leaf",
     "EngineGradients.cpp", &patch_engine_gradients},
    {"TorchScript's aten::backward, aten::grad", "the registry of JIT operators: registered anew",
     "scripts' `y.backward(gradient)`: a given gradient is cast to its output's dtype, not to the "
     "container",
     "OperatorCall.cpp", &replace_backward_operators},
    {"torch.Tensor.__dlpack_c_exchange_api__",
     "the function table in its capsule, writable, in place",
     "libraries that read it once and call it without Python would get the container: an error",
     "DlpackExchange.cpp", &patch_dlpack_exchange},
    {"builtins",
     "`ml_meth` of their `PyMethodDef`, writable: the builtin stays the same object, and a stock "
     "call pays one test",
     "the rows of kind *builtin* in Python", "Trampolines.cpp"},
    {"casts of stock tensors", "`c10::SafeKernelFunction::kernel_`, a private member",
     "a stock cast goes on to the kernel behind ours without a second look into the dispatcher's "
     "tables",
     "aten/src/ATen/native/formats/operators/casts/Copy.cpp"},
};

} // namespace

void install_patches(PyObject* implementations) {
  for (const Patch& patch : kPatches) {
    if (patch.install) patch.install();
    if (!patch.install_with) continue;
    PyObject* implementation = PyDict_GetItemString(implementations, patch.target); // borrowed
    TORCH_CHECK(implementation, "expected a function for ", patch.target,
                ", but got none; name it in `runs` of its row");
    patch.install_with(implementation);
  }
}

PyObject* list_patches() {
  THPObjectPtr list(PyList_New(0));
  for (const Patch& p : kPatches) {
    THPObjectPtr row(
        Py_BuildValue("(sssszss)", p.target, p.how, p.why, p.file, p.runs, p.first, p.last));
    if (!list || !row || PyList_Append(list.get(), row.get()) < 0) throw python_error();
  }
  return list.release();
}

} // namespace torch::formats
