// Chains of elementwise operators of one format, in one pass over memory: tile by tile in cache, each result rounded as the single operator
// rounds it. What lies between two operators stays a machine number, and has no code unless a table wants it.
#pragma once
#include <ATen/FormatTensor.h>

#include <string>
#include <vector>

namespace at::formats {

struct ChainStep {
  // LookUp: an entry of a table by a's code. LookUpPair: the same by the codes of a and b, of 8 bits each.
  enum class Do : uint8_t { Add, Sub, Mul, Div, Sqrt, LookUp, LookUpPair };
  static constexpr int kNumber = -1, kNone = -2;

  Do what;
  int a, b{kNone}; // values, of which one may be the number
  double number{0};
  int table{0};
};

using ChainDo = ChainStep::Do;

// Values are numbered: the operands, then each step's result.
struct Chain {
  std::string format;
  int operands{0};
  std::vector<ChainStep> steps;
  std::vector<int> results; // steps' values, each once

  // Text such as "posit16es2 of 3; mul 0 1; add 3 2; look_up 4 0; give 5": the format, the number of operands, the steps, and the results. A number
  // among a step's operands has a # before it ("mul 0 #0x1.8p+0"); the last operand of look_up and look_up_pair is a table's place.
  static Chain parse(const std::string& text);
};

// The chain's results as codes, with the sizes and strides of the first operand, which is dense; the others' are broadcast to it. All of them
// are codes on the CPU. A table has an entry for each code, one of pairs 256 times 256 and kPairPadding more.
std::vector<at::Tensor> run_chain(const Chain& chain, const FormatEntry& entry, at::ArrayRef<at::Tensor> operands, at::ArrayRef<at::Tensor> tables);

} // namespace at::formats
