// Sequences of elementwise operators over the same few tensors, run in one pass over memory: block
// by block in cache, each result rounded as the single operator rounds it. An optimizer's step is
// one.
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

// One run of a program: the tensors in its first registers, undefined where it does not use them.
struct Run {
  const Program* program;
  at::Tensor tensors[kTensors];
};

// Runs them all, one after the other, with the bits of a loop over single operators (and its random
// words). In one pass each where its tensors are of one format, lie in memory alike and share
// nothing with others; else by those operators.
void run_programs(const std::vector<Run>& runs);

} // namespace at::formats
