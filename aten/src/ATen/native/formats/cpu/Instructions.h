// Short sequences of elementwise operators over a few registers, as data. BlockProgram.h runs them
// on the CPU, cuda/ProgramKernel.cu on a GPU. No header of PyTorch.
#pragma once
#include <cstdint>

namespace at::formats {

// Results of the instructions. Each is rounded once, except the first three, which round nothing.
//   Negate: -a. Copy: a. Maximum: max(a, b). AddNumber, MultiplyNumber, DivideNumber: a op number.
//   AddScaled: a + number * b. Lerp: a + number * (b - a). Addcmul: a + number * b * c. Addcdiv: a
//   + number * b / c. Sqrt: sqrt(a).
enum class Do : uint8_t {
  Negate,
  Copy,
  Maximum,
  AddNumber,
  MultiplyNumber,
  DivideNumber,
  AddScaled,
  Lerp,
  Addcmul,
  Addcdiv,
  Sqrt
};

struct Instruction {
  Do what;
  uint8_t to, a, b{0}, c{0};
  double number{0};
};

inline constexpr int kRegisters = 8;
// The first registers hold tensors, the others intermediate results.
inline constexpr int kTensors = 5;

// The number of registers that an instruction reads; and whether its results need no rounding.
constexpr int operands_of(Do what) {
  switch (what) {
    case Do::Maximum:
    case Do::AddScaled:
    case Do::Lerp: return 2;
    case Do::Addcmul:
    case Do::Addcdiv: return 3;
    default: return 1;
  }
}
constexpr bool rounds_nothing(Do what) {
  return what == Do::Negate || what == Do::Copy || what == Do::Maximum;
}

} // namespace at::formats
