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
  // nullptr for both functions: the place is read where it is used.
  Install install = nullptr;
  // Takes the function of torch_dtypes/host/hooks that `runs` names.
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
     "Give format dtypes `is_floating_point`, `itemsize`, `abbr`, `to_real`, `__reduce__` and "
     "others.",
     "DtypePatches.cpp", nullptr, &patch_dtype, "serialization:reduce_dtype"},
    {"torch.utils._dtype_abbrs.dtype_abbrs", "entries",
     "Listings of graphs, checkpoints and debug modes look up every dtype there.",
     "DtypeTable.cpp"},
    {"Tensor.dtype",
     "the getset table of `TensorBase`, writable, in place: the property stays the same object",
     "Return the format dtype, not the storage dtype.", "DtypePatches.cpp", &patch_tensor_dtype},
    {"torch.finfo", "its slots `tp_new`, `tp_repr`, `tp_str` and its dictionary",
     "Give the limits of format dtypes.", "FormatInfo.cpp", &patch_finfo},
    {"Tensor.__setitem__",
     "the slot `mp_ass_subscript` of `TensorBase` and of classes that have inherited it",
     "Round the number in `x[i] = 1.3` once. PyTorch makes a tensor of the storage dtype from it, "
     "which rounds it before.",
     "SetItem.cpp", &patch_setitem},
    {"Tensor.data", "the setter in the getset table of `TensorBase`",
     "Give a tensor a new body in `.data =`, and so in `model.to(dtype)`. A stock tensor cannot "
     "become a format tensor in its old body, nor the reverse.",
     "TensorProperties.cpp", nullptr, &patch_data, "conversion:set_data"},
    {"a tensor's body",
     "`cdata` of the Python object and the `PyObjectSlot` of both bodies change places; autograd's "
     "record (`TensorImpl::autograd_meta_`, hooks, gradient, version) moves with them; "
     "`AccumulateGrad::variable` of older graphs then names the new body",
     "Keep the Python object when its dtype changes between stock and format. The exchange cannot "
     "fail half way.",
     "TensorBody.cpp"},
    {"Tensor.grad", "the setters `grad` and `_grad` in the getset table of `TensorBase`",
     "Refuse a gradient of another dtype; PyTorch compares storage dtypes.", "TensorProperties.cpp",
     &patch_grad},
    {"Tensor.grad_dtype", "the getset table of `TensorBase`",
     "Return the format dtype where PyTorch means the storage dtype.", "TensorProperties.cpp",
     &patch_grad_dtype},
    {"torch.Tensor", "the slot `tp_new`",
     "Run `torch.Tensor(...)` while the default dtype is a format dtype.", "TensorProperties.cpp",
     nullptr, &patch_tensor_new, "from_data:legacy_tensor"},
    {"hooks of tensors, nodes and modules",
     "the calls in the virtual tables of `PyFunctionTensorPreHook`, `PyFunctionPreHook` and "
     "`PyFunctionPostHook`",
     "Check that a hook returns the dtype that it got; PyTorch compares storage dtypes.",
     "GradientHooks.cpp", &patch_gradient_hooks},
    {"gradients of another dtype",
     "`VariableHooks::grad_dtype` and `AccumulateGrad::apply`, in their virtual tables",
     "Pass a C++ function's result on unchanged, and cast it once, in the leaf. The engine would "
     "cast it to the storage dtype.",
     "EngineGradients.cpp", &patch_engine_gradients},
    {"TorchScript's aten::backward, aten::grad", "the registry of JIT operators: registered again",
     "Cast the gradient in a script's `y.backward(gradient)` to its output's dtype, not to the "
     "storage dtype.",
     "OperatorCall.cpp", &replace_backward_operators},
    {"torch.Tensor.__dlpack_c_exchange_api__",
     "the function table in its capsule, writable, in place",
     "Raise where libraries that read it once, and call it without Python, would get the storage "
     "dtype.",
     "DlpackExchange.cpp", &patch_dlpack_exchange},
    {"builtins",
     "`ml_meth` of their `PyMethodDef`, writable: the builtin stays the same object, and a stock "
     "call costs one more test",
     "Run the rows of kind *builtin* in Python.", "Trampolines.cpp"},
    {"casts of stock tensors", "`c10::SafeKernelFunction::kernel_`, a private member",
     "Let a stock cast reach the kernel behind this package's without another look-up in the "
     "dispatcher's tables.",
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
