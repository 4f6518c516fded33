#include <ATen/native/formats/elementwise/BlockArithmetic.h>

#include <ATen/native/formats/elementwise/Elementwise.h>
#include <c10/formats/arithmetic/NanSigns.h>
#include <c10/formats/sums/ZeroSums.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace at::formats {

using c10::formats::is_positive;
using c10::formats::is_stochastic;
using c10::formats::sign_zero_sums;

static bool is_sum(Do what) {
  switch (what) {
    case Do::AddNumber:
    case Do::AddScaled:
    case Do::Addcmul:
    case Do::Addcdiv:
    case Do::Lerp: return true;
    default: return false;
  }
}

template <typename T>
ProgramBlocks<T>::ProgramBlocks(const CompiledProgram& program, const Format& format,
                                const Recorder* recorders)
    : program_(program),
      recorders_(recorders),
      format_(format),
      unrounded_(format),
      k_(program.kernels) {
  if (is_stochastic(format.rounding)) unrounded_.rounding = c10::formats::Rounding::NearestEven;
}

template <typename T>
template <typename U>
void ProgramBlocks<T>::encode(U* values, char* codes, int64_t n, const RandomWords& words) {
  c10::formats::drop_nan_signs(format_, values, n);
  k_.encode(format_, values, codes, n, words);
  if (seen_ && *seen_) seen_->codes(values, codes, n);
}

// Decides as elementwise() does, so that results agree to the last bit.
template <typename T>
bool ProgramBlocks<T>::in_float(const Instruction& i) const {
  if (!std::is_same_v<T, float> || !format_.arithmetic_in_float() || wants_double()) return false;
  switch (i.what) {
    case Do::Sqrt: return true;
    case Do::Lerp:
    case Do::Addcdiv: return false;
    case Do::Addcmul: return addcmul_fits_float(format_, i.number);
    case Do::AddScaled:
      return i.number == 1 || (number_fits_float(i.number) && format_.significand_bits() <= 12);
    default: return number_fits_float(i.number);
  }
}

template <typename T>
bool ProgramBlocks<T>::compute_mixed(const Instruction& i, T* out, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    if (!format_.arithmetic_in_float() || i.what == Do::Sqrt || !number_is_mixed(i.number))
      return false;
    if (wants_double() && operands_of(i.what) == 1) return false;
    const float *a = registers_[i.a], *b = registers_[i.b], *c = registers_[i.c];
    switch (i.what) {
      case Do::AddNumber: return k_.binary_mixed(BinaryOp::Add, a, nullptr, i.number, out, n);
      case Do::MultiplyNumber: return k_.binary_mixed(BinaryOp::Mul, a, nullptr, i.number, out, n);
      case Do::DivideNumber: return k_.binary_mixed(BinaryOp::Div, a, nullptr, i.number, out, n);
      case Do::AddScaled: return k_.ternary_mixed(TernaryOp::Fma, nullptr, b, a, i.number, out, n);
      case Do::Lerp: return k_.ternary_mixed(TernaryOp::Lerp, a, b, nullptr, i.number, out, n);
      case Do::Addcmul: return k_.ternary_mixed(TernaryOp::Addcmul, b, c, a, i.number, out, n);
      default: return k_.ternary_mixed(TernaryOp::Addcdiv, b, c, a, i.number, out, n);
    }
  } else {
    return false;
  }
}

template <typename T>
template <typename U>
void ProgramBlocks<T>::compute(const Instruction& i, const U* a, const U* b, const U* c, U* out,
                               int64_t n) {
  U* number = reinterpret_cast<U*>(wide_[3]);
  const bool adds_tensors = i.what == Do::AddScaled && i.number == 1;
  const bool takes_block = i.what == Do::AddNumber || i.what == Do::MultiplyNumber ||
      i.what == Do::DivideNumber || i.what == Do::Lerp ||
      (i.what == Do::AddScaled && !adds_tensors);
  if (takes_block) std::fill_n(number, n, static_cast<U>(i.number));
  const auto binary = [&](BinaryOp op, const U* y) { k_.binary(op, a, y, out, n); };
  const auto ternary = [&](TernaryOp op, const U* x, const U* y, const U* z, double s) {
    k_.ternary(op, x, y, z, static_cast<U>(s), out, n);
  };
  switch (i.what) {
    case Do::AddNumber: return binary(BinaryOp::Add, number);
    case Do::MultiplyNumber: return binary(BinaryOp::Mul, number);
    case Do::DivideNumber: return binary(BinaryOp::Div, number);
    case Do::AddScaled:
      if (adds_tensors) return binary(BinaryOp::Add, b);
      return ternary(TernaryOp::Fma, number, b, a, 1);
    case Do::Lerp: return ternary(TernaryOp::Lerp, a, b, number, 1);
    case Do::Addcmul: return ternary(TernaryOp::Addcmul, b, c, a, i.number);
    case Do::Addcdiv: return ternary(TernaryOp::Addcdiv, b, c, a, i.number);
    default: return k_.unary(UnaryOp::Sqrt, a, out, n);
  }
}

template <typename T>
void ProgramBlocks<T>::run(char* const* at, int64_t n, int64_t first,
                           c10::ArrayRef<uint64_t> seeds) {
  char* memory[kRegisters];
  std::copy_n(at, kTensors, memory);
  for (int r = kTensors; r < kRegisters; ++r) memory[r] = between_[r - kTensors];
  const auto bytes = [&](int r) { return reinterpret_cast<uint8_t*>(memory[r]); };
  for (const CompiledProgram::Step& step : program_.steps) {
    const Instruction& i = step.instruction;
    T* to = registers_[i.to];
    if (!step.pairs.empty()) {
      k_.look_up_pair(step.pairs.data(), bytes(i.a), bytes(i.b), bytes(i.to), n);
      continue;
    }
    if (!step.table.empty()) {
      if constexpr (std::is_same_v<T, float>)
        k_.look_up(step.table.data(), memory[i.a], format_.itemsize(), to, n);
      continue;
    }
    const uint8_t operands[] = {i.a, i.b, i.c};
    for (int j = 0; j < 3; ++j) {
      if (step.loads[j]) k_.decode(format_, memory[operands[j]], registers_[operands[j]], n);
    }
    const T *a = registers_[i.a], *b = registers_[i.b];
    char* codes = step.stored ? memory[i.to] : codes_;
    seen_ = recorders_ ? recorders_ + i.to : nullptr;
    const RandomWords words{seeds.empty() ? 0 : seeds[step.place], static_cast<uint64_t>(first), 1};
    if (rounds_nothing(i.what)) {
      for (int64_t e = 0; e < n; ++e) {
        T larger = a[e] > b[e] ? a[e] : b[e];
        if (std::isnan(a[e]) || std::isnan(b[e])) larger = std::numeric_limits<T>::quiet_NaN();
        const T moved = i.what == Do::Negate ? -a[e] : a[e];
        result_[e] = i.what == Do::Maximum ? larger : moved;
      }
      const Format rounding = std::exchange(format_, unrounded_); // draws no random bits
      seen_ = nullptr;
      round(step, codes, n, words);
      format_ = rounding;
      continue;
    }
    const bool single = in_float(i);
    bool in_t = single || compute_mixed(i, result_, n);
    if (single) compute<T>(i, a, b, registers_[i.c], result_, n);
    if constexpr (std::is_same_v<T, double>) {
      compute<double>(i, a, b, registers_[i.c], result_, n);
      in_t = true;
    }
    double* wide = wide_[0];
    if (!in_t) {
      for (int j = 0; j < operands_of(i.what); ++j)
        std::copy_n(registers_[operands[j]], n, wide_[j]);
      compute<double>(i, wide_[0], wide_[1], wide_[2], wide, n);
    }
    if (is_sum(i.what)) {
      // Read the operands' registers: if the sum was computed in float64, it may have overwritten
      // their copies.
      const T *c = registers_[i.c], number = static_cast<T>(i.number);
      const auto both_positive = [&](int64_t e) {
        switch (i.what) {
          case Do::AddNumber: return is_positive(a[e]) && is_positive(number);
          case Do::AddScaled: return terms_are_positive(TernaryOp::Fma, number, b[e], a[e], T{1});
          case Do::Lerp: return terms_are_positive(TernaryOp::Lerp, a[e], b[e], number, T{1});
          // Also Addcdiv: a quotient's signs are a product's.
          default: return terms_are_positive(TernaryOp::Addcmul, b[e], c[e], a[e], number);
        }
      };
      in_t ? sign_zero_sums(format_.rounding, result_, n, both_positive)
           : sign_zero_sums(format_.rounding, wide, n, both_positive);
    }
    if (in_t) {
      round(step, codes, n, words);
    } else {
      encode(wide, codes, n, words);
      if (step.read) k_.decode(format_, codes, to, n);
    }
  }
}

// Rounds the result to the format: into memory if it is stored, into its register if it is read.
template <typename T>
void ProgramBlocks<T>::round(const CompiledProgram::Step& step, char* codes, int64_t n,
                             const RandomWords& words) {
  T* to = registers_[step.instruction.to];
  // Rounding to posits takes fewer instructions than decoding them.
  const bool rounds = !seen_ && !is_stochastic(format_.rounding) &&
      (!step.stored || (step.read && format_.is_posit()));
  const bool rounded = rounds && k_.round(format_, result_, to, n);
  if (rounded && !step.stored) return;
  encode(result_, codes, n, words);
  if (step.read && !rounded) k_.decode(format_, codes, to, n);
}

template class ProgramBlocks<float>;
template class ProgramBlocks<double>;

} // namespace at::formats
