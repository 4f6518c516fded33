// Operators whose floating operands stock wants in one dtype (matrix products, convolutions,
// attention, layers), and normalisation layers, which may have float32 parameters beside an input
// of another dtype.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/elementwise/ResultType.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// An error for a mask of attention that is neither bool, float32 (or wider) nor of the query's
// dtype, as stock has it.
void expect_mask(const Plan& plan, const torch::jit::IValue& mask, const FormatEntry& entry);

// Of a call. Raises for operands of several dtypes where the operator has a rule.
ResultType result_type(const Plan& plan, const torch::jit::Stack& stack, size_t base);

// Whether a stock operand is to be cast to the type that operands of several dtypes promote to:
// where the operator wants one dtype.
bool takes_promoted(const Plan& plan, const at::Tensor& t, bool written, c10::ScalarType type);
// Tensors of ours, and stock operands that are to be, become tensors of a stock type: by casts that
// autograd sees.
void cast_operands(const Plan& plan, torch::jit::Stack& stack, size_t base, c10::ScalarType type);

// In a block of autocast with a stock dtype, nested with one whose dtype is ours: tensors of ours
// beside what the block has cast are cast, too. False: another call.
bool cast_to_block(const Plan& plan, torch::jit::Stack& stack);

// A normalisation of an input of ours by float32 parameters and statistics: on the exact values,
// and the result is rounded once; statistics stay float32. False: another call.
bool run_normalisation(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack,
                       Casts casts);

// Kernels for composite operators that compare dtypes by the container.
void register_checked_composites();

} // namespace at::formats
