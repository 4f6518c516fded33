// One call of any operator by its schema: which arguments are tensors of ours, the stock tensors that stand for them, and the way back.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/native/formats/FillInfinity.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

namespace at::formats {

class Plan;

// What formats and stock floating types among an operator's tensors make of its result, by PyTorch's category rules: a format wins
// over Python scalars and integers; a stock floating tensor wins over a format unless only the format's tensor has dimensions; complex
// wins over both. Two formats do not mix: an error.
class ResultType {
 public:
  const FormatEntry* format{nullptr};   // the format among the operands
  std::optional<c10::ScalarType> stock; // the stock floating or complex type among them
  bool integers{false};                 // or bool, among them

  static ResultType of(const Plan& plan, const torch::jit::Stack& stack, size_t base);
  void see(const at::Tensor& t, const char* op);
  void keep(const at::Tensor& first); // the result has this one's dtype
  bool stock_wins() const;
  bool is_complex() const { return stock && c10::isComplexType(*stock); }
  // The result's format, or nullptr where it is of the stock type.
  const FormatEntry* result() const { return stock_wins() ? nullptr : format; }

 private:
  bool complex_number_{false}; // of Python: the complex type of the format's compute type, as torch.complex(x, x)
  bool format_has_dims_{false};
  bool stock_has_dims_{false};
};

// The name without namespace and without the underscore of in-place operators: "tanh" of "aten::tanh_".
std::string base_name(const std::string& op);

// Whether operands of several floating dtypes promote, as in arithmetic, or are an error; see OperandRules.h.
// FloatingOneDtype: beside integers that are indices, or masks.
enum class OperandRule : uint8_t { Any, OneDtype, FloatingOneDtype, Normalisation };

// What must be known of an operator's schema, worked out once.
class Plan {
 public:
  enum class Slot : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Dtype };
  struct Argument {
    Slot slot;
    bool written;
    bool numbers; // a tensor that only holds numbers: it says nothing of types
    std::string name;
  };

  explicit Plan(const c10::FunctionSchema& schema);
  static bool makes_view(const c10::FunctionSchema& schema);
  bool takes_tensor() const;

  std::string name;
  std::vector<Argument> arguments;
  bool adds_products; // the accumulation policy says how
  bool elementary;    // computed in float64
  bool tabled;        // narrow formats look its results up
  bool selects;       // every result is one of the inputs' values: nothing is rounded
  bool moves;         // elements only, see MovedCodes.h
  bool per_place;     // lists of tensors, each place for itself
  bool leaves_range;  // of float64, see Elementary.h
  OperandRule rule;
  bool keeps_first;   // the result's dtype is the first operand's, whatever is put into it
  bool writes;        // to a tensor, not counting lists of them
  int accumulate;     // the place of a flag of that name, which undoes `selects`; or -1
  std::vector<NumberPlace> numbers; // see FillInfinity.h
  bool random;        // draws numbers, in the order of memory
  bool draws_only;    // and nothing but the first operand's sizes and strides counts
  bool below_one;     // draws from [0, 1), so that no result may be rounded up
  int limits;         // the place of two numbers that stand for infinities (nan_to_num's posinf, neginf), or -1
};

class BoxedCall {
 public:
  struct Pair {
    at::Tensor ours;
    at::Tensor stock;
    bool written;
  };

  enum class Casts : uint8_t { Plain, Recorded }; // Recorded: by casts that autograd sees

  // Replaces the tensors of ours on the stack by stock ones of the compute type, and dtypes of ours by that type.
  BoxedCall(const Plan& plan, torch::jit::Stack* stack, Casts casts = Casts::Plain);

  // After the stock operator: writes back what it wrote, and makes tensors of ours of its results on the stack.
  void finish(size_t results, torch::jit::Stack* stack) const;

  const c10::SmallVector<Pair, 6>& pairs() const { return pairs_; }

  // An error of the stock operator's names the type that stands for the format: adds what it stands for.
  void explain(c10::Error& error) const;

 private:
  at::Tensor result(const at::Tensor& t) const;
  void choose_types(const Plan& plan, torch::jit::Stack& stack, size_t base);
  std::optional<c10::formats::Rounding> rounding_of_results(const FormatEntry& entry) const;
  at::Tensor cast(const at::Tensor& t, c10::ScalarType type) const;
  void share_memory(const Plan& plan, const torch::jit::Stack& stack, size_t base);
  at::Tensor stand_in(const at::Tensor& t, bool written);

  at::Tensor rounded(const at::Tensor& t) const;
  at::Tensor laid_out(const at::Tensor& t) const;

  const std::string& name_;
  at::Tensor operand_; // the first one's values, where results may leave float64's range and the format has nothing beyond it
  Casts casts_;
  bool selects_, random_, below_one_;
  at::Tensor blank_; // whose elements do not count
  const FormatEntry* format_{nullptr};              // of results, or nullptr: they stay stock
  const FormatEntry* own_{nullptr};                 // of the operands
  c10::ScalarType compute_{c10::ScalarType::Float}; // of the stand-ins
  c10::SmallVector<Pair, 6> pairs_;
};

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
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) list.push_back(t ? std::optional<at::Tensor>(body(*t)) : t);
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

// Whether a tensor among a call's arguments is ours, maybe within wrappers of torch.func; whether a number is complex; and whether autograd
// records the call.
bool any_of_ours(const Plan& plan, const torch::jit::Stack& stack);
bool has_complex_number(const Plan& plan, const torch::jit::Stack& stack);
bool is_recorded(const Plan& plan, const torch::jit::Stack& stack);

} // namespace at::formats
