// One call of any operator by its schema: which arguments are tensors of ours, the stock tensors
// that stand for them, and the way back.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/native/formats/operators/facts/Plan.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

namespace at::formats {

class BoxedCall {
 public:
  struct Pair {
    at::Tensor ours;
    at::Tensor stock;
    bool written;
  };

  using Casts = at::formats::Casts;

  // Replaces the tensors of ours on the stack by stock ones of the compute type, and dtypes of ours
  // by that type.
  BoxedCall(const Plan& plan, torch::jit::Stack* stack, Casts casts = Casts::Plain);

  // After the stock operator: writes back what it wrote, and makes tensors of ours of its results
  // on the stack.
  void finish(size_t results, torch::jit::Stack* stack) const;

  const c10::SmallVector<Pair, 6>& pairs() const { return pairs_; }

  // An error of the stock operator's names the type that stands for the format: adds what it stands
  // for.
  void explain(c10::Error& error) const;

 private:
  // The codes of which maximum, minimum, fmax or fmin gives the greater or the lesser.
  struct Sides {
    bool greater;
    at::Tensor first, second;
  };

  at::Tensor result(const at::Tensor& t) const;
  // Nullptr: it is no stand-in of what the operator writes to.
  const Pair* written_as(const at::Tensor& stock) const;
  bool keeps_operands(const Plan& plan, c10::DeviceType device) const;
  void choose_types(const Plan& plan, torch::jit::Stack& stack, size_t base);
  std::optional<c10::formats::Rounding> rounding_of_results(const FormatEntry& entry) const;
  at::Tensor cast(const at::Tensor& t, c10::ScalarType type) const;
  void keep_sides(const Plan& plan, const torch::jit::Stack& stack, size_t base);
  void keep_power(const torch::jit::Stack& stack, size_t base);
  void keep_operand(const Plan& plan, const torch::jit::Stack& stack, size_t base);
  void share_memory(const Plan& plan, const torch::jit::Stack& stack, size_t base);
  bool casts_together(const at::Tensor& t) const;
  void decode_together(const Plan& plan, const torch::jit::Stack& stack, size_t base);
  void encode_together(size_t first, torch::jit::Stack* stack) const;
  at::Tensor stand_in(const at::Tensor& t, bool written);

  void sign_zeros_of(const at::Tensor& made) const;
  at::Tensor before_rounding(const at::Tensor& t) const;
  void keep_range(const Plan& plan, torch::jit::Stack& stack, size_t base);
  void keep_integers(const Plan& plan, torch::jit::Stack& stack, size_t base);
  at::Tensor laid_out(const at::Tensor& t) const;

  const Plan& plan_;
  at::Tensor operand_; // the first one's values, where they tell what float64's results stand for
  // The results have logarithms of the format's kind, and powers' magnitudes are these.
  bool on_logarithms_{false};
  at::Tensor magnitudes_;
  std::optional<Sides> sides_; // where there is a -0
  bool ranged_{false}, near_{false}; // beyond its range, and beside a number
  Casts casts_;
  bool selects_, random_;
  at::Tensor blank_; // whose elements do not count
  std::optional<at::Generator> generator_;
  double least_{-INFINITY}, most_{INFINITY}; // of the numbers that may be drawn
  const FormatEntry* format_{nullptr};              // of results, or nullptr: they stay stock
  const FormatEntry* own_{nullptr};                 // of the operands
  c10::ScalarType compute_{c10::ScalarType::Float}; // of the stand-ins
  c10::SmallVector<Pair, 6> pairs_;
};

} // namespace at::formats
