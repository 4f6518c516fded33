// Runs a sequence of elementwise operators over the same few tensors in one pass over memory. It
// works block by block in cache and rounds each result as the single operator does. An optimizer's
// step is such a sequence.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/native/formats/cpu/Instructions.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace at::formats {

struct Program {
  c10::SmallVector<Instruction, 16> instructions;

  void add(Do what, int to, int a, int b = 0, int c = 0, double number = 0) {
    instructions.push_back({what, uint8_t(to), uint8_t(a), uint8_t(b), uint8_t(c), number});
  }
  bool writes(int r) const;
  bool uses(int r) const;
};

// One run of a program: the tensors in its first registers, undefined if it does not use them.
struct Run {
  const Program* program;
  at::Tensor tensors[kTensors];
};

// Runs all, one after the other, with the bits and the random words of a loop over single
// operators. A run takes one pass if its tensors have one format, are laid out alike and share no
// memory with others. Otherwise single operators run.
void run_programs(const std::vector<Run>& runs);

} // namespace at::formats
