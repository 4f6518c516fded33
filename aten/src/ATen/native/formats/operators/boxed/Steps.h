// The route of an operator, compiled for one schema: a function for each step of its row that the
// schema does not rule out.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>
#include <c10/util/SmallVector.h>

namespace at::formats {

// Runs a step. True: the results are on the stack. False: the call is still to be run, on the stack
// as it then is.
using RunStep = bool (*)(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);
using RunSteps = c10::SmallVector<RunStep, 6>;

// Below autograd: the steps of the row, in its order. The last one always does the work.
RunSteps compile_steps(const Plan& plan, const c10::FunctionSchema& schema);

// Above autograd, before an operator with ByCasts is recorded as casts: those of its steps that are
// made of operators which are recorded.
RunSteps compile_recorded_steps(const Plan& plan);

// Takes the steps in their order until one has done its work. Gives back whether one has.
inline bool run_steps(const RunSteps& steps, const c10::OperatorHandle& op, const Plan& plan,
                      torch::jit::Stack* stack) {
  for (const RunStep run : steps) {
    if (run(op, plan, stack)) return true;
  }
  return false;
}

} // namespace at::formats
