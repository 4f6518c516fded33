// Finds calls of TorchScript functions and methods that work on number formats.
//
// The stock executor uses storage dtypes, and would read codes as numbers. So a script module does
// not run such a call, and a script function runs the Python function from which it was made
// (torch/torch_dtypes/host/hooks/scripts.py).
#include <torch/csrc/formats/scripts/ScriptCall.h>
#include <torch/csrc/formats/scripts/ScriptFormats.h>

#include <ATen/FormatTensor.h>
#include <c10/formats/ForkSafeMutex.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>
#include <torch/csrc/formats/hooks/Trampolines.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <mutex>
#include <unordered_map>

namespace torch::formats {
namespace {

using jit::Graph;
using jit::GraphFunction;

struct Known {
  std::weak_ptr<Graph> graph;
  bool names_format;
};

c10::formats::ForkSafeMutex lock;

// Needs the lock.
Known& find_known(const GraphFunction& function) {
  static std::unordered_map<const Graph*, Known> all;
  const std::shared_ptr<Graph> graph = function.graph();
  auto entry = all.find(graph.get());
  if (entry != all.end() && entry->second.graph.lock() == graph) return entry->second;
  for (auto it = all.begin(); it != all.end();)
    it = it->second.graph.expired() ? all.erase(it) : std::next(it);
  return all[graph.get()] = Known{graph, names_format(*graph)};
}

bool function_names_format(jit::Function& function) {
  const GraphFunction* graph_function = jit::tryToGraphFunction(function);
  if (!graph_function) return false;
  function.ensure_defined();
  const std::lock_guard<std::mutex> guard(lock);
  return find_known(*graph_function).names_format;
}

bool works_on_formats(py::handle object) {
  const bool any = at::formats::any_format_tensor();
  if (py::isinstance<jit::Method>(object)) {
    const auto& method = py::cast<const jit::Method&>(object);
    return function_names_format(method.function()) ||
        (any && holds_format(method.owner()._ivalue()));
  }
  if (py::isinstance<jit::StrongFunctionPtr>(object))
    return function_names_format(*py::cast<const jit::StrongFunctionPtr&>(object).function_);
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

// Returns whether a Python argument is or contains a format tensor or a format dtype.
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

} // namespace

bool script_works_on_formats(PyObject* const* given, Py_ssize_t count) {
  if (autocast_to_format()) return true; // it casts stock operands to a format
  if (default_dtype_object()) return true; // factories make format tensors
  for (Py_ssize_t i = 1; i < count; ++i) {
    if (is_or_holds_format(given[i])) return true;
  }
  return count > 0 && works_on_formats(given[0]);
}

} // namespace torch::formats
