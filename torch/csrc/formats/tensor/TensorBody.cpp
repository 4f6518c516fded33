// tensor.data = ... between stock and format dtypes. The Python object gets another body (a
// TensorImpl of the other class), with its hooks, its gradient and its place in the graph. The old
// body stays, with its values, in the graphs of earlier forward passes. The gradients that these
// accumulate reach the new body, as in PyTorch, where the body changes in place.
//
// Reaches into: THPVariable's cdata; c10::TensorImpl's PyObjectSlot, by the rules of "PyObject
// preservation" (c10/util/intrusive_ptr.h: a body that C++ also holds elsewhere owns a reference to
// its Python object); TensorImpl::autograd_meta_, a protected member, which an explicit
// instantiation may name; the variable of an AccumulateGrad node.
#include <torch/csrc/formats/tensor/TensorBody.h>

#include <ATen/FormatTensor.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::formats {

using Meta = std::unique_ptr<c10::AutogradMetaInterface>;
static Meta& meta_of(c10::TensorImpl& body);
template <Meta c10::TensorImpl::* member>
struct MetaOf {
  friend Meta& meta_of(c10::TensorImpl& body) { return body.*member; }
};
template struct MetaOf<&c10::TensorImpl::autograd_meta_>;

namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::AutogradMeta;
using torch::autograd::variable_list;
using WeakNode = decltype(AutogradMeta::grad_accumulator_);
using StrongNode = decltype(std::declval<const WeakNode&>().lock());

// Casts a gradient that an older graph accumulates, after the hooks. These see the dtype that the
// tensor had then, as in PyTorch.
struct ToVariable final : torch::autograd::FunctionPreHook {
  const AccumulateGrad* node; // the owner
  explicit ToVariable(const AccumulateGrad* owner) : node(owner) {}

  variable_list operator()(const variable_list& gradients) override {
    variable_list result = gradients;
    result[0] = at::formats::gradient_of_dtype(result[0], at::formats::dtype_number(node->variable),
                                               /*stock_too=*/true);
    return result;
  }
};

// A node of an older graph that accumulates into a body. The nodes hold the body, so an entry is
// stale only when all of its nodes are gone.
struct Accumulator {
  WeakNode node;
  bool casts; // true if the node has ToVariable
};
std::unordered_map<const c10::TensorImpl*, std::vector<Accumulator>> older_accumulators;
size_t sweep_at = 64;

void forget_finished_graphs() {
  if (older_accumulators.size() < sweep_at) return;
  for (auto it = older_accumulators.begin(); it != older_accumulators.end();) {
    bool any = false;
    for (const Accumulator& a : it->second) any |= !a.node.expired();
    it = any ? std::next(it) : older_accumulators.erase(it);
  }
  sweep_at = std::max<size_t>(64, 2 * older_accumulators.size());
}

// Removes and returns the living nodes of a body, with its latest graph's.
std::vector<std::pair<StrongNode, bool>> take_accumulators(const c10::TensorImpl* body,
                                                           const AutogradMeta* meta) {
  std::vector<std::pair<StrongNode, bool>> nodes;
  const StrongNode latest = meta ? meta->grad_accumulator_.lock() : StrongNode();
  bool listed = false;
  if (const auto entry = older_accumulators.find(body); entry != older_accumulators.end()) {
    for (const Accumulator& a : entry->second) {
      if (StrongNode node = a.node.lock()) {
        listed |= node.get() == latest.get();
        nodes.emplace_back(std::move(node), a.casts);
      }
    }
    older_accumulators.erase(entry);
  }
  if (!listed && dynamic_cast<AccumulateGrad*>(latest.get())) nodes.emplace_back(latest, false);
  return nodes;
}

void keep_accumulators(const c10::TensorImpl* body, std::vector<std::pair<StrongNode, bool>>& nodes,
                       bool cast) {
  if (nodes.empty()) return;
  forget_finished_graphs();
  std::vector<Accumulator>& kept = older_accumulators[body];
  kept.clear();
  for (auto& [node, casts] : nodes) {
    if (cast && !casts)
      node->add_pre_hook(std::make_unique<ToVariable>(static_cast<AccumulateGrad*>(node.get())));
    kept.push_back({WeakNode(node), cast || casts});
  }
}

// Exchanges the bodies of two objects, which keep their identity. A body that C++ shares takes
// along the reference that it owns.
void exchange(PyObject* a, PyObject* b) {
  at::Tensor &first = reinterpret_cast<THPVariable*>(a)->cdata,
             &second = reinterpret_cast<THPVariable*>(b)->cdata;
  const bool first_shared = first.use_count() > 1, second_shared = second.use_count() > 1;
  std::swap(first, second);
  first.unsafeGetTensorImpl()->pyobj_slot()->store_pyobj(a);
  second.unsafeGetTensorImpl()->pyobj_slot()->store_pyobj(b);
  if (first_shared == second_shared) return;
  Py_INCREF(first_shared ? b : a);
  Py_DECREF(first_shared ? a : b);
}

} // namespace

void remember_accumulators(PyObject* tensor, PyObject* data) {
  const at::Tensor &given = THPVariable_Unpack(tensor), &other = THPVariable_Unpack(data);
  const auto* meta = torch::autograd::impl::get_autograd_meta(given);
  if (!meta || meta->grad_accumulator_.expired()) return;
  const c10::ScalarType before = at::formats::dtype_number(given),
                        after = at::formats::dtype_number(other);
  if (before == after) return;
  auto accumulators = take_accumulators(given.unsafeGetTensorImpl(), meta);
  keep_accumulators(given.unsafeGetTensorImpl(), accumulators,
                    /*cast=*/c10::formats::is_format_type(after));
}

PyObject* exchange_bodies(PyObject*, PyObject* args) {
  HANDLE_TH_ERRORS
  PyObject *tensor = nullptr, *other = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &tensor, &other)) return nullptr;
  TORCH_CHECK_TYPE(THPVariable_Check(tensor) && THPVariable_Check(other) && tensor != other,
                   "expected two tensors, but got other arguments or one tensor twice");
  const at::Tensor &given = THPVariable_Unpack(tensor), &data = THPVariable_Unpack(other);
  c10::TensorImpl &old_body = *given.unsafeGetTensorImpl(), &new_body = *data.unsafeGetTensorImpl();
  const c10::ScalarType before = at::formats::dtype_number(given);
  // The counter continues, but values saved in older graphs no longer count as changed.
  if (!given.is_inference() && !data.is_inference()) {
    new_body.set_version_counter(
        c10::VariableVersion(old_body.version_counter().current_version()));
  }
  exchange(tensor, other);
  std::swap(meta_of(old_body), meta_of(new_body));
  old_body.set_autograd_meta(nullptr);
  auto* meta = static_cast<AutogradMeta*>(new_body.autograd_meta());
  if (!meta) Py_RETURN_NONE;
  auto accumulators = take_accumulators(&old_body, meta);
  // In its graphs the old body stays a leaf that requires a gradient, or the result of a node.
  auto in_graphs = std::make_unique<AutogradMeta>(
      &old_body, meta->requires_grad_, torch::autograd::Edge(meta->grad_fn_, meta->output_nr_));
  in_graphs->grad_accumulator_ = meta->grad_accumulator_;
  old_body.set_autograd_meta(std::move(in_graphs));
  meta->grad_accumulator_.reset();
  const at::Tensor& now = THPVariable_Unpack(tensor);
  for (auto& [node, casts] : accumulators) static_cast<AccumulateGrad*>(node.get())->variable = now;
  keep_accumulators(&new_body, accumulators, /*cast=*/true);
  if (meta->grad_fn_)
    at::formats::record_cast(now, before, old_body.device(),
                             {torch::autograd::Edge(meta->grad_fn_, meta->output_nr_)});
  if (meta->retains_grad_) { // the node's own hook refers to the old body
    meta->retains_grad_ = false;
    now.retain_grad();
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

} // namespace torch::formats
