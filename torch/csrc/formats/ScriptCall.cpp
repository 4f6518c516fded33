// Calls of TorchScript functions and methods that work on number formats.
//
// The stock executor profiles such a call by containers: it would replace derivatives by formulas that round after every step, fuse what
// it takes for bfloat16 or float32, and hand out the container as x.dtype. So a call that works on formats runs a copy of the function's
// graph in JIT's simple executor, which runs operators one by one as Python would, with the few nodes replaced that name a dtype.
// Reaches into: the graph of a GraphFunction (copied), the registry of JIT operators (a namespace of its own).
#include <torch/csrc/formats/ScriptCall.h>
#include <torch/csrc/formats/ScriptFormats.h>
#include <torch/csrc/formats/ScriptMasks.h>

#include <ATen/FormatTensor.h>
#include <c10/formats/ForkSafeMutex.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/DtypeObject.h>
#include <torch/csrc/formats/Trampolines.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/utils/tensor_layouts.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>
#include <unordered_map>

namespace torch::formats {
namespace {

using c10::IValue;
using jit::Graph;
using jit::GraphFunction;
using jit::Node;
using jit::Stack;

// ---- operators in place of those that name a dtype ----

// What torch.<name> makes of the same arguments: the factories and reductions with a dtype of ours are in Python.
void call_python(const c10::FunctionSchema& schema, Stack& stack) {
  const size_t count = schema.arguments().size();
  const py::gil_scoped_acquire gil;
  py::list args;
  py::dict kwargs;
  for (size_t i = 0; i < count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    IValue value = jit::peek(stack, i, count);
    py::object object;
    if (argument.name() == "dtype" && value.isInt()) {
      object = py::reinterpret_borrow<py::object>(dtype_object(c10::formats::format_entry(static_cast<c10::ScalarType>(value.toInt()))));
    } else if (argument.name() == "layout" && value.isInt()) {
      object = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<c10::Layout>(value.toInt()))));
    } else if (argument.name() == "memory_format" && value.isInt()) {
      object = py::reinterpret_steal<py::object>(Py_NewRef(torch::utils::getTHPMemoryFormat(static_cast<c10::MemoryFormat>(value.toInt()))));
    } else {
      object = jit::toPyObject(std::move(value));
    }
    if (!argument.kwarg_only()) {
      args.append(object);
    } else if (!object.is_none()) {
      kwargs[argument.name().c_str()] = object;
    }
  }
  jit::drop(stack, count);
  const std::string name = schema.name().substr(schema.name().find("::") + 2);
  const py::module_ torch_module = py::module_::import("torch");
  py::object result;
  if (py::hasattr(torch_module, name.c_str())) {
    result = torch_module.attr(name.c_str())(*args, **kwargs);
  } else if (name.rfind("fft_", 0) == 0) {
    result = torch_module.attr("_C").attr("_fft").attr(name.c_str())(*args, **kwargs);
  } else {
    py::object self = args[0];
    result = self.attr(name.c_str())(*py::tuple(args[py::slice(1, static_cast<py::ssize_t>(count), 1)]), **kwargs);
  }
  jit::push(stack, THPVariable_Unpack(result.ptr()));
}

// An operator of the same schema that takes a stock dtype for what it says, also where it is the container's, and knows ours. A factory without one
// makes numbers of the default dtype, which may be ours when the script runs.
jit::Operation with_written_dtype(const c10::FunctionSchema& schema, int place, jit::Operation stock) {
  const bool converts = schema.name() == "aten::to", makes = is_factory(schema);
  return [schema, place, converts, makes, stock = std::move(stock)](Stack& stack) mutable {
    const IValue dtype = jit::peek(stack, place, schema.arguments().size());
    if (is_format_number(dtype) && !converts) return call_python(schema, stack);
    if (makes && dtype.isNone() && default_dtype_object()) return call_python(schema, stack);
    std::optional<at::formats::ExplicitDtypeGuard> exact;
    if (dtype.isInt()) exact.emplace();
    stock(stack);
  };
}

const char kNamespace[] = "number_formats::";

c10::Symbol registered(const Node* node, int place) {
  static std::set<std::string> known; // guarded by the lock of `variant`
  const c10::FunctionSchema& schema = node->schema();
  const std::string name = kNamespace + schema.name().substr(schema.name().find("::") + 2);
  if (known.insert(name + "." + schema.overload_name()).second) {
    jit::registerOperator(jit::Operator(name, schema.overload_name(), schema.arguments(), schema.returns(),
                                        with_written_dtype(schema, place, node->getOperation()), c10::AliasAnalysisKind::FROM_SCHEMA));
  }
  return c10::Symbol::fromQualString(name);
}

void push_dtype(Stack& stack) {
  const at::Tensor t = jit::pop(stack).toTensor();
  const bool ours = at::formats::is_format_tensor(t);
  jit::push(stack, static_cast<int64_t>(ours ? c10::formats::scalar_type(at::formats::entry_of(t)) : t.scalar_type()));
}

// What print shows of a tensor: the stock text has the container's name in it.
void push_text(Stack& stack) {
  const at::Tensor t = jit::pop(stack).toTensor();
  if (at::formats::is_format_tensor(t)) {
    const py::gil_scoped_acquire gil;
    jit::push(stack, std::string(py::str(py::reinterpret_steal<py::object>(THPVariable_Wrap(t)))));
  } else {
    std::ostringstream text;
    text << t;
    jit::push(stack, text.str());
  }
}

// What tolist reads: the stock one reads memory by the container.
void push_values(Stack& stack) {
  const at::Tensor t = jit::pop(stack).toTensor();
  jit::push(stack, at::formats::is_format_tensor(t) ? at::formats::to_stock(t.detach(), at::kDouble) : t);
}

const jit::RegisterOperators own_operators({
    jit::Operator("number_formats::dtype(Tensor a) -> int", &push_dtype, c10::AliasAnalysisKind::FROM_SCHEMA),
    jit::Operator("number_formats::text(Tensor a) -> str", &push_text, c10::AliasAnalysisKind::CONSERVATIVE),
    jit::Operator("number_formats::values(Tensor a) -> Tensor", &push_values, c10::AliasAnalysisKind::CONSERVATIVE),
});

// Puts an operator with one argument between a node and those of its inputs that are tensors.
void wrap_tensors(Node* node, const char* op, const c10::TypePtr& result) {
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    if (!node->input(i)->type()->isSubtypeOf(*c10::TensorType::get())) continue;
    Node* wrapped = node->owningGraph()->create(c10::Symbol::fromQualString(op), {node->input(i)});
    wrapped->output()->setType(result);
    wrapped->insertBefore(node);
    node->replaceInput(i, wrapped->output());
  }
}

// A trace writes down the dtype that a tensor had where nobody named one (cpu(), new_zeros): on a tensor of ours that is the container.
bool is_traced_default(const Node* node, int place) {
  if (node->schema().name() == "aten::to" && node->schema().overload_name() != "dtype_layout") return false; // to(dtype), float()
  const auto dtype = jit::toIValue(node->input(place));
  const auto type = node->inputs().empty() ? nullptr : node->input(0)->type()->cast<c10::TensorType>();
  return dtype && dtype->isInt() && type && type->scalarType() && *type->scalarType() == static_cast<c10::ScalarType>(dtype->toInt());
}

void rewrite(jit::Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it++;
    for (jit::Block* inner : node->blocks()) rewrite(inner);
    const int place = place_of_dtype(node);
    if (node->kind() == c10::prim::dtype) {
      node->replaceWithNewSymbol(c10::Symbol::fromQualString("number_formats::dtype"));
    } else if (place >= 0 && (is_factory(node->schema()) || (!node->input(place)->mustBeNone() && !is_traced_default(node, place)))) {
      node->replaceWithNewSymbol(registered(node, place));
    } else {
      rewrite_mask(node);
      if (node->kind() == c10::prim::Print) wrap_tensors(node, "number_formats::text", c10::StringType::get());
      if (node->kind() == c10::prim::tolist) wrap_tensors(node, "number_formats::values", c10::TensorType::get());
      continue;
    }
    node->destroy();
  }
}

// ---- functions, and their variants for formats ----

struct Known {
  std::weak_ptr<Graph> graph;
  bool names_format;
  // Made at the first call that works on formats, and at the first within an autocast of ours.
  std::shared_ptr<GraphFunction> variant, in_autocast;
};

c10::formats::ForkSafeMutex lock;

// Needs the lock.
Known& known(const GraphFunction& function) {
  static std::unordered_map<const Graph*, Known> all;
  const std::shared_ptr<Graph> graph = function.graph();
  auto found = all.find(graph.get());
  if (found != all.end() && found->second.graph.lock() == graph) return found->second;
  for (auto it = all.begin(); it != all.end();) it = it->second.graph.expired() ? all.erase(it) : std::next(it);
  return all[graph.get()] = Known{graph, names_format(*graph), nullptr, nullptr};
}

std::shared_ptr<GraphFunction> variant(const GraphFunction& function) {
  const std::lock_guard<std::mutex> guard(lock);
  Known& entry = known(function);
  const bool autocast = autocast_to_format();
  std::shared_ptr<GraphFunction>& made = autocast ? entry.in_autocast : entry.variant;
  if (!made) {
    auto graph = function.graph()->copy();
    {
      const c10::impl::ExcludeDispatchKeyGuard outside(c10::autocast_dispatch_keyset); // else functions come with autocast's casts of this block
      jit::Inline(*graph);
    }
    rewrite(graph->block());
    made = std::make_shared<GraphFunction>(function.qualname(), graph, nullptr, jit::ExecutorExecutionMode::SIMPLE);
    // JIT's own autocast writes the first block's dtype into the graph. Operators ask autocast by themselves; blocks in the script's text need it.
    made->_set_ignore_amp(autocast && !has_blocks(graph->block()));
  }
  return made;
}

bool function_names_format(jit::Function& function) {
  const GraphFunction* graph_function = jit::tryToGraphFunction(function);
  if (!graph_function) return false;
  function.ensure_defined();
  const std::lock_guard<std::mutex> guard(lock);
  return known(*graph_function).names_format;
}

bool works_on_formats(py::handle object) {
  const bool any = at::formats::any_format_tensor();
  if (py::isinstance<jit::Method>(object)) {
    const auto& method = py::cast<const jit::Method&>(object);
    return function_names_format(method.function()) || (any && holds_format(method.owner()._ivalue()));
  }
  if (py::isinstance<jit::StrongFunctionPtr>(object)) return function_names_format(*py::cast<const jit::StrongFunctionPtr&>(object).function_);
  if (py::isinstance<Graph>(object)) return names_format(py::cast<const Graph&>(object));
  if (py::isinstance<jit::Module>(object)) {
    const auto& module = py::cast<const jit::Module&>(object);
    if (any && holds_format(module._ivalue())) return true;
    for (const jit::Method& method : module.get_methods()) {
      if (function_names_format(method.function())) return true;
    }
  }
  return false;
}

// A tensor or dtype of ours among Python arguments, also in containers.
bool is_or_holds_format(PyObject* value, int depth = 0) {
  if (format_of_tensor(value) || format_of_dtype(value)) return true;
  if (depth == 16) return false;
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      if (is_or_holds_format(PySequence_Fast_GET_ITEM(value, i), depth + 1)) return true;
    }
  } else if (PyDict_Check(value)) {
    PyObject *key = nullptr, *item = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(value, &position, &key, &item)) {
      if (is_or_holds_format(item, depth + 1)) return true;
    }
  }
  return false;
}

// A tensor of a subclass with a __torch_function__ of its own, which stock calls instead of the method.
bool overrides_functions(py::handle value) {
  if (!is_tensor(value.ptr()) || reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())) == THPVariableClass) return false;
  return !value.attr("__torch_function__").is(py::module_::import("torch._C").attr("_disabled_torch_function_impl"));
}

py::object run_script(const py::object& stock, const py::args& args, const py::kwargs& kwargs) {
  const py::object callable = args[0];
  const jit::tuple_slice given(args, 1);
  jit::Function* function = nullptr;
  std::optional<IValue> self;
  if (py::isinstance<jit::Method>(callable)) {
    auto& method = py::cast<jit::Method&>(callable);
    function = &method.function();
    self = method.owner()._ivalue();
  } else {
    function = py::cast<jit::StrongFunctionPtr&>(callable).function_;
  }
  if (self && std::any_of(args.begin() + 1, args.end(), overrides_functions)) return stock(*args, **kwargs);
  // While a trace is made, stock inserts a call into its graph; a call of that graph comes here.
  if (jit::tracer::isTracing() || !jit::tryToGraphFunction(*function)) return stock(*args, **kwargs);
  const std::shared_ptr<GraphFunction> own = variant(jit::toGraphFunction(*function));
  Stack stack = jit::createStackForSchema(function->getSchema(), given, kwargs, std::move(self));
  {
    const py::gil_scoped_release released;
    own->run(stack);
  }
  return jit::toPyObject(std::move(stack.back()));
}

} // namespace

bool script_works_on_formats(PyObject* const* given, Py_ssize_t count) {
  if (autocast_to_format()) return true; // stock operands become ours on the way
  if (default_dtype_object()) return true; // and factories make tensors of ours
  for (Py_ssize_t i = 1; i < count; ++i) {
    if (is_or_holds_format(given[i])) return true;
  }
  return count > 0 && works_on_formats(given[0]);
}

void bind_script_calls(PyObject* module) {
  py::reinterpret_borrow<py::module_>(module).def("run_script", &run_script,
                                                  "A call that works on number formats runs a copy of the graph (ScriptCall.cpp).");
}

} // namespace torch::formats
