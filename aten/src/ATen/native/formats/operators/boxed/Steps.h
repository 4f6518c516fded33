// The route of an operator, compiled for one schema: a function for each step of its row that the
// schema does not rule out.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>
#include <c10/util/SmallVector.h>

namespace at::formats {

// Runs a step. True: the results are on the stack. False: the call must still run, on the stack as
// the step left it.
using RunStep = bool (*)(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);
using RunSteps = c10::SmallVector<RunStep, 6>;

// Below autograd: the steps of the row, in its order. The last one always runs the call.
RunSteps compile_steps(const Plan& plan, const c10::FunctionSchema& schema);

// Above autograd, before an operator with ByCasts is recorded as casts: the steps that consist of
// recorded operators.
RunSteps compile_recorded_steps(const Plan& plan);

// Runs the steps in order until one has run the call. Returns whether one has.
inline bool run_steps(const RunSteps& steps, const c10::OperatorHandle& op, const Plan& plan,
                      torch::jit::Stack* stack) {
  for (const RunStep run : steps) {
    if (run(op, plan, stack)) return true;
  }
  return false;
}

} // namespace at::formats
