// What must be known of an operator: what follows from its schema, and its row in the table of
// operators; worked out once.
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

// Whether operands of several floating dtypes promote, as in arithmetic, or are an error; see
// OperandRules.h. FloatingOneDtype: beside integers that are indices, or masks.
enum class OperandRule : uint8_t { Any, OneDtype, FloatingOneDtype, Normalisation };

// How a call's operands become stock tensors. Recorded: by casts that autograd sees.
enum class Casts : uint8_t { Plain, Recorded };

class Plan {
 public:
  enum class Slot : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Dtype };
  struct Argument {
    Slot slot;
    bool written;
    bool in_training; // and only then
    bool numbers; // a tensor that only holds numbers: it says nothing of types
    bool where;   // indices or a mask: no values
    std::string name;
  };

  explicit Plan(const c10::FunctionSchema& schema);
  static bool makes_view(const c10::FunctionSchema& schema);
  bool takes_tensor() const;
  // Whether a call writes to an argument.
  bool writes_to(size_t argument, const torch::jit::Stack& stack, size_t base) const;
  bool has(fact::Set any) const { return facts.has_any(any); }
  bool takes(Step step) const { return route.has(step); }
  // Whether products or values are added up: the accumulation policy says how.
  bool adds_products() const { return takes(Step::PolicyProducts) || takes(Step::RefusePolicy); }

  std::string name;
  std::string base; // without "aten::" and the underscore of what works in place
  Route route; // of the row: Steps.h compiles it for one schema
  fact::Set facts;
  std::vector<Argument> arguments;
  OperandRule rule;
  bool by_casts; // not in place
  bool selects;  // every result is one of the inputs' values: nothing is rounded
  bool writes;   // to a tensor, not counting lists of them
  int accumulate; // the place of a flag of that name, which undoes `selects`; or -1
  int reduce;      // the place of a text of that name, of which "amax" and the like select; or -1
  bool first_alone; // of the results the first alone is rounded
  bool near_ties; // see comes_near_ties
  bool random;     // draws numbers, in the order of memory
  int generator;   // the place of the argument of that name, or -1
  bool draws_only; // and nothing but the first operand's sizes and strides counts
  int training;    // the place of normalisation's flag, or -1
  int mask;        // the place of attention's mask, or -1
  int smoothing;   // the place of cross entropy's label_smoothing, or -1
  // The place of two numbers that stand for infinities (nan_to_num's posinf, neginf), or -1.
  int limits;
  std::vector<NumberPlace> numbers; // see NumberPlaces.h
  const ProductKernels* products;   // of the row, or nullptr
  ProductKernel product;            // of those the one for this schema, or nullptr
  // Of the step CastOut: the operator whose result out= gets.
  std::optional<c10::OperatorHandle> functional;

 private:
  Plan(const c10::FunctionSchema& schema, const OperatorFacts& row);
};

// Whether it takes a tensor to write to, beside the first operand: out=.
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

// Whether a tensor among a call's arguments is ours, maybe within wrappers of torch.func; whether a
// number is complex; and whether autograd records the call.
bool any_of_ours(const Plan& plan, const torch::jit::Stack& stack);
bool has_complex_number(const Plan& plan, const torch::jit::Stack& stack);
bool is_recorded(const Plan& plan, const torch::jit::Stack& stack);

// Whether a call of an operator with the step Composed runs by single operators all the same, each
// rounded: under an accumulation policy of steps of our own; where operands are of several dtypes,
// which promote there or raise; and cross entropy of class indices without smoothing, whose
// logarithms are rounded as log_softmax's are.
bool is_composed(const Plan& plan, const torch::jit::Stack& stack);
void run_composed(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace at::formats
