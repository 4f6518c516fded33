// torch.ops.aten.sum(x, dtype=torch.bfloat16): a stock dtype in an operator called by hand is the user's, as in torch.sum.
// Reaches into: the functions OpOverload.__call__ and OpOverloadPacket.__call__ of torch/_ops.py, whose code (torch_dtypes/_overlay/operators.py)
// calls call_operator where it called the operator; and TorchScript's operators aten::backward and
// aten::grad, which are registered anew.
#include <torch/csrc/formats/OperatorCall.h>

#include <ATen/FormatTensor.h>
#include <ATen/native/formats/overlay/CastAutograd.h>
#include <ATen/native/formats/overlay/StockFormula.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/DtypeObject.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <cstring>

namespace torch::formats {
namespace {

struct Given {
  PyObject* own_dtype = nullptr;
  bool stock_dtype = false;
  bool own_tensor = false;

  void see(PyObject* value) {
    if (THPDtype_Check(value)) {
      if (format_of_dtype(value)) own_dtype = value;
      else stock_dtype = true;
    } else if (PyList_Check(value) || PyTuple_Check(value)) {
      for (Py_ssize_t i = 0, n = PySequence_Fast_GET_SIZE(value); i < n && !own_tensor; ++i) {
        own_tensor = format_of_tensor(PySequence_Fast_GET_ITEM(value, i)) != nullptr;
      }
    } else if (!own_tensor) {
      own_tensor = format_of_tensor(value) != nullptr;
    }
  }

  template <typename See>
  static void each(PyObject* args, PyObject* kwargs, See see) {
    for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(args); i < n; ++i) see(PyTuple_GET_ITEM(args, i));
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(kwargs, &position, &key, &value)) see(value);
  }

  Given(PyObject* args, PyObject* kwargs) {
    each(args, kwargs, [&](PyObject* value) { see(value); });
  }
};

bool names_dtype(PyObject* args, PyObject* kwargs) {
  bool any = false;
  Given::each(args, kwargs, [&](PyObject* value) { any |= THPDtype_Check(value); });
  return any;
}

// Most stock kernels look our numbers up in a table that ends before them: they fail over that, or make a tensor without a dtype.
bool is_misunderstood(PyObject* result) {
  if (result) return THPVariable_Check(result) && !THPVariable_Unpack(result).dtype().isScalarType();
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return false;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  THPObjectPtr text(value ? PyObject_Str(value) : nullptr);
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  const bool found = words && (std::strstr(words, "Unsupported TypeMeta") || std::strstr(words, "UNKNOWN_SCALAR"));
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return found;
}

// Operators that are written in Python (prims', a user's) get their dtypes through PyTorch's table, which ends before our numbers: what lies
// beyond it is read as an object. aten's are in C++.
bool is_outside_aten(PyObject* op) {
  THPObjectPtr module(PyObject_GetAttrString(op, "__module__"));
  const char* name = module ? PyUnicode_AsUTF8(module.get()) : nullptr;
  if (!name) PyErr_Clear();
  return !name || std::strcmp(name, "torch._ops.aten") != 0;
}

} // namespace

PyObject* call_operator(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 3 || !PyTuple_Check(given[1]) || !PyDict_Check(given[2])) {
    PyErr_SetString(PyExc_TypeError, "expected an operator, a tuple and a dictionary");
    return nullptr;
  }
  PyObject *op = given[0], *args = given[1], *kwargs = given[2];
  if (!names_dtype(args, kwargs)) return PyObject_Call(op, args, kwargs);
  const Given seen(args, kwargs);
  if (!seen.own_dtype) {
    std::optional<at::formats::ExplicitDtypeGuard> exact;
    if (seen.own_tensor) exact.emplace();
    return PyObject_Call(op, args, kwargs);
  }
  if (is_outside_aten(op)) {
    PyErr_Format(PyExc_TypeError,
                 "expected a stock dtype for this operator called by hand, but got %S: operators outside of aten know stock "
                 "dtypes only. Convert its operands or its result.",
                 seen.own_dtype);
    return nullptr;
  }
  PyObject* result = PyObject_Call(op, args, kwargs);
  if (is_misunderstood(result)) {
    Py_XDECREF(result);
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "expected a stock dtype for this operator called by hand, but got %S. Call the function of torch that it is "
                 "named for, or convert its result.",
                 seen.own_dtype);
    return nullptr;
  }
  return result;
}

// A given gradient in the dtype of what it is a gradient of: the engine would cast it to the container.
static c10::IValue of_same_dtype(const c10::IValue& gradient, const c10::IValue& output) {
  if (!gradient.isTensor() || !output.isTensor()) return gradient;
  return at::formats::gradient_of_dtype(gradient.toTensor(), at::formats::dtype_number(output.toTensor()));
}

void replace_backward_operators() {
  using torch::jit::Operator, torch::jit::Stack;
  for (const auto& [name, argument] : {std::pair{"aten::backward", "gradient"}, {"aten::backward", "grad_tensors"}, {"aten::grad", "grad_outputs"}}) {
    const auto all = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name)); // a copy: the list changes
    for (const auto& stock : all) {
      const c10::FunctionSchema schema = stock->schema();
      const std::optional<int> place = schema.argumentIndexWithName(argument);
      if (!place) continue;
      const int from_end = static_cast<int>(schema.arguments().size()) - *place, first = static_cast<int>(schema.arguments().size());
      torch::jit::Operation run = stock->getOperation();
      const c10::AliasAnalysisKind kind = stock->aliasAnalysisKind();
      torch::jit::deregisterOperator(schema);
      torch::jit::registerOperator(Operator(
          c10::str(schema),
          [run, from_end, first](Stack& stack) mutable {
            c10::IValue& gradients = *(stack.end() - from_end);
            const c10::IValue& outputs = *(stack.end() - first);
            if (gradients.isList() && outputs.isList()) {
              const c10::List<c10::IValue> of = outputs.toList();
              c10::List<c10::IValue> cast = gradients.toList().copy();
              for (size_t i = 0; i < std::min(cast.size(), of.size()); ++i) cast.set(i, of_same_dtype(cast.get(i), of.get(i)));
              gradients = std::move(cast);
            } else {
              gradients = of_same_dtype(gradients, outputs);
            }
            const at::formats::BackwardGuard guard;
            run(stack);
          },
          kind));
    }
  }
}

} // namespace torch::formats
