// Ranges of random numbers, which rounding must not leave.
#include <ATen/native/formats/operators/boxed/BoxedCall.h>

#include <ATen/native/formats/elementwise/DrawnIntegers.h>

#include <optional>
#include <tuple>

namespace at::formats {

// Bounds draws whose nearest number would be 0 or the open end of an interval. (An end that the
// format lacks is not kept to: an initial parameter is float32's draw, rounded.)
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

// For randint, random_ and their kin, whose range may have one end only, and for randperm.
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
  // Otherwise the stock operator raises.
  if (to && from < *to) std::tie(least_, most_) = drawn_integers(*format_, from, *to, plan.name);
}

} // namespace at::formats
