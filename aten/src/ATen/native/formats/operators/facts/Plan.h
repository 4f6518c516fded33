// All that must be known of an operator, derived once from its schema and its row in the table of
// operators.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/boxed/ProductKernels.h>
#include <ATen/native/formats/operators/facts/NumberPlaces.h>
#include <ATen/native/formats/operators/facts/OperatorFacts.h>

#include <optional>
#include <string>
#include <vector>

namespace at::formats {

// Whether operands of several floating dtypes promote, as in arithmetic, or raise; see
// OperandRules.h. FloatingOneDtype: integers are allowed, as indices or masks.
enum class OperandRule : uint8_t { Any, OneDtype, FloatingOneDtype, Normalisation };

// How a call's operands become stock tensors. Recorded: by casts that autograd records.
enum class Casts : uint8_t { Plain, Recorded };

class Plan {
 public:
  enum class Slot : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Dtype };
  struct Argument {
    Slot slot;
    bool written;
    bool in_training; // written in training only
    bool numbers; // a tensor of numbers, which does not decide dtypes
    bool where;   // indices or a mask, not values
    std::string name;
  };

  explicit Plan(const c10::FunctionSchema& schema);
  static bool makes_view(const c10::FunctionSchema& schema);
  bool takes_tensor() const;
  // Whether a call writes to an argument.
  bool writes_to(size_t argument, const torch::jit::Stack& stack, size_t base) const;
  bool has(fact::Set any) const { return facts.has_any(any); }
  bool takes(Step step) const { return route.has(step); }
  // Whether the operator adds up products or values, as the accumulation policy says.
  bool adds_products() const { return takes(Step::PolicyProducts) || takes(Step::RefusePolicy); }

  std::string name;
  std::string base; // without "aten::" and the underscore of in-place operators
  Route route; // the row's; Steps.h compiles it for one schema
  fact::Set facts;
  std::vector<Argument> arguments;
  OperandRule rule;
  bool by_casts; // never set for in-place operators
  bool selects;  // every result is a value of the inputs: nothing is rounded
  bool writes;   // writes to a tensor; lists of tensors do not count
  int accumulate; // index of the flag `accumulate`, which undoes `selects`; or -1
  int reduce;      // index of the text `reduce`; "amax" and others select; or -1
  bool first_alone; // only the first result is rounded
  bool near_ties; // see comes_near_ties
  bool random;     // draws numbers, in the order of memory
  int generator;   // index of the argument `generator`, or -1
  bool draws_only; // only the first operand's sizes and strides count
  int training;    // index of normalisation's flag, or -1
  int mask;        // index of attention's mask, or -1
  int smoothing;   // index of cross entropy's label_smoothing, or -1
  // Index of two numbers that replace infinities (nan_to_num's posinf, neginf), or -1.
  int limits;
  std::vector<NumberPlace> numbers; // see NumberPlaces.h
  const ProductKernels* products;   // the row's, or nullptr
  ProductKernel product;            // the one of them for this schema, or nullptr
  // For the step CastOut: the operator whose result is stored in out=.
  std::optional<c10::OperatorHandle> functional;

 private:
  Plan(const c10::FunctionSchema& schema, const OperatorFacts& row);
};

// Whether the schema has a tensor to write to other than the first operand: out=.
bool has_out(const c10::FunctionSchema& schema);

// Replaces every tensor in one argument by body(tensor).
template <typename Body>
void map_tensors(Plan::Slot slot, c10::IValue& value, Body&& body) {
  if (slot == Plan::Slot::Tensor && value.isTensor()) {
    value = body(value.toTensor());
  } else if (slot == Plan::Slot::TensorList && value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(body(t));
    value = std::move(list);
  } else if (slot == Plan::Slot::OptionalTensorList && value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
      list.push_back(t ? std::optional<at::Tensor>(body(*t)) : t);
    value = std::move(list);
  }
}

// Calls body for every tensor in one argument.
template <typename Body>
void each_tensor(Plan::Slot slot, const c10::IValue& value, Body&& body) {
  if (slot == Plan::Slot::Tensor && value.isTensor()) {
    body(value.toTensor());
  } else if (slot == Plan::Slot::TensorList && value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) body(t);
  } else if (slot == Plan::Slot::OptionalTensorList && value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
      if (t) body(*t);
    }
  }
}

// Whether a call's arguments have a format tensor, also within wrappers of torch.func; whether they
// have a complex number; and whether autograd records the call.
bool any_of_ours(const Plan& plan, const torch::jit::Stack& stack);
bool has_complex_number(const Plan& plan, const torch::jit::Stack& stack);
bool is_recorded(const Plan& plan, const torch::jit::Stack& stack);

// Whether a call of an operator with the step Composed runs by single operators, each rounded. That
// is so under a policy with kernels of this package, and for operands of several dtypes, which
// promote or raise there. It is also so for cross entropy of class indices without smoothing, whose
// logarithms are rounded as log_softmax's are.
bool is_composed(const Plan& plan, const torch::jit::Stack& stack);
void run_composed(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace at::formats
