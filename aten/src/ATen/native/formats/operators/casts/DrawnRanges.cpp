// Of random numbers: the range in which what is rounded stays.
#include <ATen/native/formats/operators/boxed/BoxedCall.h>

#include <ATen/native/formats/elementwise/DrawnIntegers.h>

#include <optional>
#include <tuple>

namespace at::formats {

// The nearest number to a draw may be the end that an interval is open at, or 0. (An end that is no
// number of the format is not kept to: what initialises parameters is float32's draw, rounded.)
void BoxedCall::keep_range(const Plan& plan, torch::jit::Stack& stack, size_t base) {
  if (!format_ || casts_ != Casts::Plain) return;
  if (plan.has(fact::Integers)) keep_integers(plan, stack, base);
  const Format& f = format_->format;
  if (plan.has(fact::Positive)) least_ = c10::formats::smallest(f);
  if (!plan.has(fact::Interval)) return;
  const double from = stack[base + 1].toDouble(), to = stack[base + 2].toDouble();
  const double below =
      c10::formats::number_from(f, to) == to ? c10::formats::number_below(f, to) : to;
  if (below >= from && below < to) most_ = below;
}

// Of randint, random_ and their kin, whose range may have one end, and of randperm.
void BoxedCall::keep_integers(const Plan& plan, torch::jit::Stack& stack, size_t base) {
  int64_t from = 0;
  std::optional<int64_t> to;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const std::string& name = plan.arguments[i].name;
    c10::IValue& value = stack[base + i];
    if (name == "from" || name == "low") from = value.toInt();
    if (name == "n") expect_permutation(*format_, value.toInt());
    if (name != "to" && name != "high") continue;
    if (value.isNone()) {
      const int64_t most = counts_to(format_->format);
      TORCH_CHECK(from <= most, plan.name, ": expected from of at most ", most,
                  ", up to which torch.", format_->name, " has every integer, but got ", from);
      value = most + 1;
    }
    to = value.isTensor() ? value.toTensor().item<int64_t>() : value.toInt();
  }
  // Else the stock operator has the error.
  if (to && from < *to) std::tie(least_, most_) = drawn_integers(*format_, from, *to, plan.name);
}

} // namespace at::formats
