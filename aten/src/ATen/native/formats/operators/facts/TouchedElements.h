// Operators that write some elements of a tensor and have something to compute there: they run on those alone.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Runs the operator on the elements that it writes, each once, and puts them back; the others are not looked at. The values are those of the
// operator on the whole tensor: what meets in one element does so in the same order. False, and nothing done, where that would not be
// faster, or where the arguments are not what stock expects, which has the words for it.
bool run_on_touched(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
