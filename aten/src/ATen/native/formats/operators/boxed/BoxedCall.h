// One call of any operator by its schema: finds format tensors among the arguments, replaces them
// by stock stand-ins, and converts results back.
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

  // Replaces format tensors on the stack by stock tensors of the compute type, and format dtypes by
  // that type.
  BoxedCall(const Plan& plan, torch::jit::Stack* stack, Casts casts = Casts::Plain);

  // After the stock operator: writes back what it wrote, and converts its results on the stack to
  // format tensors.
  void finish(size_t results, torch::jit::Stack* stack) const;

  const c10::SmallVector<Pair, 6>& pairs() const { return pairs_; }

  // The stock operator's errors name the compute type; adds the format that it stands for.
  void explain(c10::Error& error) const;

 private:
  // Codes of the operands of maximum, minimum, fmax or fmin.
  struct Sides {
    bool greater;
    at::Tensor first, second;
  };

  at::Tensor result(const at::Tensor& t) const;
  // Returns nullptr if the tensor is no stand-in of one that the operator writes to.
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
  at::Tensor operand_; // values of the operand that the ends of results depend on
  // Results get logarithms that the format has; magnitudes_ are the magnitudes of powers.
  bool on_logarithms_{false};
  at::Tensor magnitudes_;
  std::optional<Sides> sides_; // set if an operand has a -0
  bool ranged_{false}, near_{false}; // the ends to correct: beyond the range, near a number
  Casts casts_;
  bool selects_, random_;
  at::Tensor blank_; // the written tensor, if its old elements do not count
  std::optional<at::Generator> generator_;
  double least_{-INFINITY}, most_{INFINITY}; // bounds of the numbers that may be drawn
  const FormatEntry* format_{nullptr};              // format of results; nullptr: they stay stock
  const FormatEntry* own_{nullptr};                 // format of the operands
  c10::ScalarType compute_{c10::ScalarType::Float}; // type of the stand-ins
  c10::SmallVector<Pair, 6> pairs_;
};

} // namespace at::formats
