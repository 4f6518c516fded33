// Hooks of Python on tensors and graph nodes: the gradient that a hook returns must have the dtype
// of the gradient that it got. PyTorch compares storage dtypes: it accepts the storage dtype for
// the format and the reverse, and names it in errors. Reaches into: the virtual tables of
// PyFunctionTensorPreHook, PyFunctionPreHook and PyFunctionPostHook. libtorch_python does not
// export them, so they are read from hooks made here, and their entries of operator() are
// exchanged. No hook is wrapped or copied, so PyTorch's objects stay the same, and compiled_args
// (for compiled autograd) is PyTorch's own.
#include <torch/csrc/formats/gradients/GradientHooks.h>

#include <ATen/FormatTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/hooks/VirtualTables.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>

namespace torch::formats {
namespace {

using namespace torch::autograd;

std::string text_of(PyObject* object) {
  THPObjectPtr text(object ? PyObject_Str(object) : nullptr);
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!words) throw python_error();
  return words;
}

std::string name_of(PyObject* hook) {
  THPObjectPtr name(PyObject_GetAttrString(hook, "__name__"));
  if (name) return text_of(name.get());
  PyErr_Clear();
  return text_of(THPObjectPtr(PyObject_Repr(hook)).get());
}

std::string dtype_name(PyObject* tensor) {
  return text_of(THPObjectPtr(PyObject_GetAttrString(tensor, "dtype")).get());
}

void expect_gradient_like(PyObject* given, PyObject* returned, PyObject* hook) {
  if (returned == Py_None || returned == given) return;
  TORCH_CHECK(given != Py_None, "can't replace a None gradient with a non-None value");
  TORCH_CHECK_TYPE(is_tensor(returned), "expected Variable, but hook returned '",
                   Py_TYPE(returned)->tp_name, "'");
  TORCH_CHECK(format_of_tensor(given) == format_of_tensor(returned), "expected the hook ",
              name_of(hook), " to return a gradient of ", dtype_name(given), ", but got ",
              dtype_name(returned), "; convert it with .to()");
  check_variable_result(THPVariable_Unpack(given), THPVariable_Unpack(returned), name_of(hook));
}

// Calls the hooks in turn, as PyTorch does. Each gets the previous one's result, a gradient or a
// tuple of them, and `second`, if any.
THPObjectPtr call_hooks(PyObject* dict, THPObjectPtr given, PyObject* second = nullptr) {
  THPObjectPtr hooks(PyDict_Values(dict)); // a copy: a hook may remove itself
  if (!hooks) throw python_error();
  for (Py_ssize_t i = 0, n = PyList_GET_SIZE(hooks.get()); i < n; ++i) {
    PyObject* hook = PyList_GET_ITEM(hooks.get(), i);
    THPObjectPtr returned(PyObject_CallFunctionObjArgs(hook, given.get(), second, nullptr));
    if (!returned) throw python_error();
    if (returned.get() == Py_None) continue;
    if (!PyTuple_CheckExact(given.get())) {
      expect_gradient_like(given.get(), returned.get(), hook);
    } else {
      TORCH_CHECK_TYPE(PyTuple_Check(returned.get()), "expected tuple, but hook returned '",
                       Py_TYPE(returned.get())->tp_name, "'");
      const Py_ssize_t size = PyTuple_GET_SIZE(given.get()),
                       count = PyTuple_GET_SIZE(returned.get());
      TORCH_CHECK(size == count, "hook '", name_of(hook),
                  "' has returned an incorrect number of values (got ", count, ", but expected ",
                  size, ")");
      for (Py_ssize_t k = 0; k < size; ++k)
        expect_gradient_like(PyTuple_GET_ITEM(given.get(), k), PyTuple_GET_ITEM(returned.get(), k),
                             hook);
    }
    given = std::move(returned);
  }
  return given;
}

THPObjectPtr wrap_list(const variable_list& list) {
  THPObjectPtr tuple(PyTuple_New(static_cast<Py_ssize_t>(list.size())));
  if (!tuple) throw python_error();
  for (size_t i = 0; i < list.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), i, THPVariable_Wrap(list[i]));
  return tuple;
}

variable_list unwrap_tuple(PyObject* tuple) {
  variable_list list(PyTuple_GET_SIZE(tuple));
  for (size_t i = 0; i < list.size(); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (item != Py_None) list[i] = THPVariable_Unpack(item);
  }
  return list;
}

bool any_has_format(const variable_list& list) {
  return std::any_of(list.begin(), list.end(), [](const at::Tensor& t) {
    return t.defined() && at::formats::entry_beneath(t);
  });
}

// Checks that a stock call with stock gradients has returned no format tensor. The hook that did is
// no longer known. (A tensor's hooks see its gradient only. The gradients of its node's other
// results may have a format, and are returned unchanged.)
void expect_stock(const variable_list& returned, const variable_list& given, PyObject* dict) {
  for (size_t i = 0; i < returned.size(); ++i) {
    if (!returned[i].defined() || returned[i].is_same(given[i]) ||
        !at::formats::entry_beneath(returned[i]))
      continue;
    const pybind11::gil_scoped_acquire gil;
    std::string names;
    THPObjectPtr hooks(PyDict_Values(dict));
    if (!hooks) throw python_error();
    for (Py_ssize_t k = 0, n = PyList_GET_SIZE(hooks.get()); k < n; ++k)
      names += (k ? " or " : "") + name_of(PyList_GET_ITEM(hooks.get(), k));
    TORCH_CHECK(false, "expected the hook ", names, " to return a gradient of ",
                dtype_name(THPObjectPtr(THPVariable_Wrap(given[i])).get()), ", but got ",
                dtype_name(THPObjectPtr(THPVariable_Wrap(returned[i])).get()),
                "; convert it with .to()");
  }
}

// Member functions with the compiler's calling convention: `this` is the first argument.
using PreHook = variable_list (*)(FunctionPreHook*, const variable_list&);
using PostHook = variable_list (*)(FunctionPostHook*, const variable_list&, const variable_list&);
PreHook stock_tensor_pre_hook = nullptr, stock_pre_hook = nullptr;
PostHook stock_post_hook = nullptr;

variable_list tensor_pre_hook(FunctionPreHook* self, const variable_list& given) {
  const auto* hook = static_cast<PyFunctionTensorPreHook*>(self);
  const at::Tensor& gradient = given.at(hook->value_idx);
  if (!gradient.defined() || !at::formats::entry_beneath(gradient)) {
    variable_list results = stock_tensor_pre_hook(self, given);
    expect_stock(results, given, hook->dict);
    return results;
  }
  const pybind11::gil_scoped_acquire gil;
  variable_list results(given);
  results[hook->value_idx] =
      THPVariable_Unpack(call_hooks(hook->dict, THPObjectPtr(THPVariable_Wrap(gradient))).get());
  return results;
}

variable_list pre_hook(FunctionPreHook* self, const variable_list& given) {
  PyObject* dict = static_cast<PyFunctionPreHook*>(self)->dict;
  if (!any_has_format(given)) {
    variable_list results = stock_pre_hook(self, given);
    expect_stock(results, given, dict);
    return results;
  }
  const pybind11::gil_scoped_acquire gil;
  return unwrap_tuple(call_hooks(dict, wrap_list(given)).get());
}

variable_list post_hook(FunctionPostHook* self, const variable_list& outputs,
                        const variable_list& inputs) {
  PyObject* dict = static_cast<PyFunctionPostHook*>(self)->dict;
  if (!any_has_format(outputs)) {
    variable_list results = stock_post_hook(self, outputs, inputs);
    expect_stock(results, outputs, dict);
    return results;
  }
  const pybind11::gil_scoped_acquire gil;
  return unwrap_tuple(call_hooks(dict, wrap_list(outputs), wrap_list(inputs).get()).get());
}

} // namespace

void patch_gradient_hooks() {
  const at::AutoGradMode recorded(true);
  at::Tensor leaf = at::empty({0}).requires_grad_();
  const at::Tensor result = at::neg(leaf);
  THPObjectPtr tensor(THPVariable_Wrap(leaf)),
      node(PyObject_GetAttrString(THPObjectPtr(THPVariable_Wrap(result)).get(), "grad_fn"));
  THPObjectPtr on_tensor(
      node ? PyObject_CallMethod(tensor.get(), "register_hook", "O", &PyType_Type) : nullptr);
  THPObjectPtr before(
      on_tensor ? PyObject_CallMethod(node.get(), "register_prehook", "O", &PyType_Type) : nullptr);
  THPObjectPtr after(before ? PyObject_CallMethod(node.get(), "register_hook", "O", &PyType_Type)
                            : nullptr);
  if (!after) throw python_error();
  const auto& grad_fn = result.grad_fn();
  const auto& tensor_hooks = torch::autograd::impl::hooks(leaf);
  TORCH_CHECK(
      tensor_hooks.size() == 1 && grad_fn->pre_hooks().size() == 1 &&
          grad_fn->post_hooks().size() == 1,
      "expected one hook object for each way to register one, but got another number; use a "
      "supported release");
  stock_tensor_pre_hook =
      replace_virtual(*tensor_hooks[0], "PyFunctionTensorPreHook",
                      place_in_table(&PyFunctionTensorPreHook::operator()), &tensor_pre_hook);
  stock_pre_hook = replace_virtual(*grad_fn->pre_hooks()[0], "PyFunctionPreHook",
                                   place_in_table(&PyFunctionPreHook::operator()), &pre_hook);
  stock_post_hook = replace_virtual(*grad_fn->post_hooks()[0], "PyFunctionPostHook",
                                    place_in_table(&PyFunctionPostHook::operator()), &post_hook);
}

} // namespace torch::formats
