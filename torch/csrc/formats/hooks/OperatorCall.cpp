// Operators called by hand: in torch.ops.aten.sum(x, dtype=torch.bfloat16) a stock dtype is the
// user's, as in torch.sum. Reaches into: the functions OpOverload.__call__ and
// OpOverloadPacket.__call__ of torch/_ops.py. Their new code (torch_dtypes/host/hooks/operators.py)
// calls call_operator in the place of the operator. Also TorchScript's operators aten::backward and
// aten::grad, which are registered again.
#include <torch/csrc/formats/hooks/OperatorCall.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <string>
#include <unordered_set>

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

// Returns an attribute that is a string, or "".
std::string attribute_text(PyObject* object, const char* name) {
  THPObjectPtr text(PyObject_GetAttrString(object, name));
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (words) return words;
  PyErr_Clear();
  return "";
}

// Returns whether this package has a kernel for an operator on format tensors. Names are
// aten::sum.dim_IntList, and aten::sum if one of its overloads without out= has a kernel.
bool has_own_kernel(const std::string& name) {
  static const auto* const names = [] {
    auto* all = new std::unordered_set<std::string>;
    for (const auto& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(
             c10::DispatchKey::PrivateUse2)) {
      all->insert(c10::toString(op));
      if (op.overload_name.find("out") == std::string::npos) all->insert(op.name);
    }
    return all;
  }();
  return names->count(name) != 0;
}

// Returns whether an operator called by hand knows the numbers of format dtypes. Conversions and
// this package's kernels do. The others look dtypes up in PyTorch's table, which lacks these.
// Operators written in Python (prims, a user's) get dtypes from that table. (promote_types raises
// its own error.)
bool knows_formats(const std::string& name, bool own_tensor) {
  static const std::unordered_set<std::string> known{
      "aten::to",     "aten::_to_copy",  "aten::view",     "aten::view_copy",
      "aten::tensor", "aten::as_tensor", "aten::to_dense", "aten::promote_types"};
  return known.count(name.substr(0, name.find('.'))) != 0 || (own_tensor && has_own_kernel(name));
}

} // namespace

PyObject* call_operator(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 4 || !PyTuple_Check(given[2]) || !PyDict_Check(given[3])) {
    PyErr_SetString(PyExc_TypeError,
                    "expected an operator of torch.ops, its function, a tuple and a dictionary, "
                    "but got other arguments; call the operator itself");
    return nullptr;
  }
  PyObject *op = given[1], *args = given[2], *kwargs = given[3];
  if (!names_dtype(args, kwargs)) return PyObject_Call(op, args, kwargs);
  const Given seen(args, kwargs);
  if (!seen.own_dtype) {
    std::optional<at::formats::ExplicitDtypeGuard> exact;
    if (seen.own_tensor && !at::formats::dtype_is_stock_codes()) exact.emplace();
    return PyObject_Call(op, args, kwargs);
  }
  std::string name = attribute_text(given[0], "_name"); // of one overload
  if (name.empty()) name = attribute_text(given[0], "_qualified_op_name"); // of all overloads
  const bool aten = name.rfind("aten::", 0) == 0;
  if (aten && knows_formats(name, seen.own_tensor)) return PyObject_Call(op, args, kwargs);
  PyErr_Format(PyExc_TypeError,
               "expected a stock dtype for this operator called by hand, but got %S; %s",
               seen.own_dtype,
               aten ? "call the torch function of its name, or convert its result"
                    : "convert its operands or its result, since operators outside of aten know "
                      "stock dtypes only");
  return nullptr;
}

// Casts a gradient to its output's dtype. The engine would cast it to the storage dtype.
static c10::IValue of_same_dtype(const c10::IValue& gradient, const c10::IValue& output) {
  if (!gradient.isTensor() || !output.isTensor()) return gradient;
  return at::formats::gradient_of_dtype(gradient.toTensor(),
                                        at::formats::dtype_number(output.toTensor()));
}

void replace_backward_operators() {
  using torch::jit::Operator, torch::jit::Stack;
  for (const auto& [name, argument] : {std::pair{"aten::backward", "gradient"},
                                       {"aten::backward", "grad_tensors"},
                                       {"aten::grad", "grad_outputs"}}) {
    // A copy: the list changes.
    const auto all = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name));
    for (const auto& stock : all) {
      const c10::FunctionSchema schema = stock->schema();
      const std::optional<int> place = schema.argumentIndexWithName(argument);
      if (!place) continue;
      const int from_end = static_cast<int>(schema.arguments().size()) - *place,
                first = static_cast<int>(schema.arguments().size());
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
              for (size_t i = 0; i < std::min(cast.size(), of.size()); ++i)
                cast.set(i, of_same_dtype(cast.get(i), of.get(i)));
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
