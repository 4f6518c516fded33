#include <ATen/native/formats/BlockArithmetic.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/Elementwise.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace at::formats {

using c10::formats::is_stochastic;

// ---- CompiledProgram ----

static bool is_unary(Do what) {
  return operands_of(what) == 1 && !is_exact(what);
}

CompiledProgram::CompiledProgram(const Program& program, const Format& format, int64_t elements) : format(format) {
  for (size_t i = 0; i < program.instructions.size(); ++i) steps.push_back({program.instructions[i], false, false, {}, {}, i});
  const bool narrow = format.bits <= 16 && format.fits_float() && !is_stochastic(format.rounding);
  if (narrow && elements >= int64_t{4} << format.bits) merge_into_tables();
  find_uses();
}

// A chain of instructions on one value, which is read out of a tensor's memory: of an average that decays before it is used, of a
// denominator. Its results by code.
void CompiledProgram::merge_into_tables() {
  std::vector<Step> merged;
  bool in_memory[kRegisters]; // whether a register's value is its memory's
  std::fill_n(in_memory, kRegisters, true);
  for (size_t i = 0; i < steps.size();) {
    const Instruction& head = steps[i].instruction;
    size_t end = i;
    if (is_unary(head.what) && head.a < kTensors && in_memory[head.a]) {
      while (end < steps.size() && is_unary(steps[end].instruction.what) && steps[end].instruction.to == head.to &&
             (end == i || steps[end].instruction.a == head.to)) {
        ++end;
      }
    }
    const bool again = std::any_of(steps.begin() + end, steps.end(), [&](const Step& s) { return s.instruction.to == head.to; });
    if (end == i || (head.to < kTensors && !again)) { // a tensor's last value is encoded
      in_memory[head.to] = true;
      merged.push_back(std::move(steps[i++]));
      continue;
    }
    in_memory[head.to] = false;
    Program chain;
    chain.add(head.what, kTensors, 0, 0, 0, head.number);
    for (size_t j = i + 1; j < end; ++j) chain.add(steps[j].instruction.what, kTensors, kTensors, 0, 0, steps[j].instruction.number);
    chain.add(Do::Copy, kTensors + 1, kTensors); // keeps the last one's result in its register
    const CompiledProgram plain(chain, format, 0);
    const int64_t codes = int64_t{1} << format.bits;
    // Memory may hold any code of the container's width.
    std::vector<float> table(size_t{1} << (8 * format.itemsize()), 0.0f);
    at::parallel_for(0, (codes + kProgramBlock - 1) / kProgramBlock, 4, [&](int64_t begin, int64_t last) {
      ProgramBlocks<float> blocks(plain, format);
      alignas(64) uint16_t wide[kProgramBlock];
      alignas(64) uint8_t narrow[kProgramBlock];
      for (int64_t block = begin; block < last; ++block) {
        const int64_t first = block * kProgramBlock, n = std::min(kProgramBlock, codes - first);
        for (int64_t c = 0; c < n; ++c) {
          wide[c] = static_cast<uint16_t>(first + c);
          narrow[c] = static_cast<uint8_t>(first + c);
        }
        char* at[kTensors] = {format.itemsize() == 1 ? reinterpret_cast<char*>(narrow) : reinterpret_cast<char*>(wide)};
        blocks.run(at, n, 0, {});
        std::copy_n(blocks.value(kTensors), n, table.data() + first);
      }
    });
    merged.push_back(std::move(steps[i]));
    merged.back().table = std::move(table);
    i = end;
  }
  steps = std::move(merged);
}

void CompiledProgram::find_uses() {
  bool loaded[kRegisters] = {};
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    const Instruction& in = step.instruction;
    const uint8_t operands[] = {in.a, in.b, in.c};
    for (int j = 0; j < operands_of(in.what) && step.table.empty(); ++j) {
      if (operands[j] >= kTensors || loaded[operands[j]]) continue;
      step.loads[j] = loaded[operands[j]] = true;
    }
    loaded[in.to] = true;
    bool written = false;
    for (size_t j = i + 1; j < steps.size(); ++j) {
      const Instruction& later = steps[j].instruction;
      const bool reads = later.a == in.to || (operands_of(later.what) > 1 && later.b == in.to) || (operands_of(later.what) > 2 && later.c == in.to);
      step.read |= reads && steps[j].table.empty() && !written;
      written |= later.to == in.to;
    }
    step.stored = in.to < kTensors && !written;
  }
}

// ---- ProgramBlocks ----

template <typename T>
ProgramBlocks<T>::ProgramBlocks(const CompiledProgram& program, const Format& format)
    : program_(program), format_(format), exact_(format), k_(cpu_kernels()) {
  if (is_stochastic(format.rounding)) exact_.rounding = c10::formats::Rounding::NearestEven;
}

template <typename T>
static void decode(const CpuKernels& k, const Format& f, const char* codes, T* values, int64_t n) {
  if constexpr (std::is_same_v<T, float>) k.decode_float(f, codes, values, n);
  else k.decode_double(f, codes, values, n);
}

template <typename T>
template <typename U>
void ProgramBlocks<T>::encode(const U* values, char* codes, int64_t n, const RandomWords& words) {
  U positive[kProgramBlock]; // NaNs whose signs would be seen: as elementwise() has them
  if (format_.kind == c10::formats::Kind::Float && format_.specials == c10::formats::Specials::None) {
    std::transform(values, values + n, positive, [](U x) { return x != x ? std::numeric_limits<U>::quiet_NaN() : x; });
    values = positive;
  }
  if constexpr (std::is_same_v<U, float>) k_.encode_float(format_, values, codes, n, words);
  else k_.encode_double(format_, values, codes, n, words);
}

// As elementwise() decides, so that results are its own to the last bit.
template <typename T>
bool ProgramBlocks<T>::in_float(const Instruction& i) const {
  if (!std::is_same_v<T, float> || !format_.arithmetic_in_float()) return false;
  switch (i.what) {
    case Do::Sqrt: return true;
    case Do::Lerp:
    case Do::Addcdiv: return false;
    case Do::Addcmul: return number_fits_float(i.number) && format_.significand_bits() <= 12;
    case Do::AddScaled: return i.number == 1 || (number_fits_float(i.number) && format_.significand_bits() <= 12);
    default: return number_fits_float(i.number);
  }
}

template <typename T>
bool ProgramBlocks<T>::compute_mixed(const Instruction& i, T* out, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    if (!format_.arithmetic_in_float() || i.what == Do::Sqrt || !number_is_mixed(i.number)) return false;
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
void ProgramBlocks<T>::compute(const Instruction& i, const U* a, const U* b, const U* c, U* out, int64_t n) {
  U* number = reinterpret_cast<U*>(wide_[3]);
  const bool adds_tensors = i.what == Do::AddScaled && i.number == 1;
  const bool takes_block = i.what == Do::AddNumber || i.what == Do::MultiplyNumber || i.what == Do::DivideNumber || i.what == Do::Lerp ||
      (i.what == Do::AddScaled && !adds_tensors);
  if (takes_block) std::fill_n(number, n, static_cast<U>(i.number));
  const auto binary = [&](BinaryOp op, const U* y) {
    if constexpr (std::is_same_v<U, float>) k_.binary_float(op, a, y, out, n);
    else k_.binary_double(op, a, y, out, n);
  };
  const auto ternary = [&](TernaryOp op, const U* x, const U* y, const U* z, double s) {
    if constexpr (std::is_same_v<U, float>) k_.ternary_float(op, x, y, z, static_cast<float>(s), out, n);
    else k_.ternary_double(op, x, y, z, s, out, n);
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
    default:
      if constexpr (std::is_same_v<U, float>) k_.sqrt_float(a, out, n);
      else k_.sqrt_double(a, out, n);
  }
}

template <typename T>
void ProgramBlocks<T>::run(char* const* at, int64_t n, int64_t first, c10::ArrayRef<uint64_t> seeds) {
  for (const CompiledProgram::Step& step : program_.steps) {
    const Instruction& i = step.instruction;
    T* to = registers_[i.to];
    if (!step.table.empty()) {
      if constexpr (std::is_same_v<T, float>) k_.look_up(step.table.data(), at[i.a], format_.itemsize(), to, n);
      continue;
    }
    const uint8_t operands[] = {i.a, i.b, i.c};
    for (int j = 0; j < 3; ++j) {
      if (step.loads[j]) decode(k_, format_, at[operands[j]], registers_[operands[j]], n);
    }
    const T *a = registers_[i.a], *b = registers_[i.b];
    char* codes = step.stored ? at[i.to] : codes_;
    const RandomWords words{seeds.empty() ? 0 : seeds[step.place], static_cast<uint64_t>(first), 1};
    if (is_exact(i.what)) {
      for (int64_t e = 0; e < n; ++e) {
        const T larger = std::isnan(a[e]) || std::isnan(b[e]) ? std::numeric_limits<T>::quiet_NaN() : a[e] > b[e] ? a[e] : b[e];
        result_[e] = i.what == Do::Negate ? -a[e] : i.what == Do::Copy ? a[e] : larger;
      }
      const Format rounding = std::exchange(format_, exact_); // no random bits
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
      for (int j = 0; j < operands_of(i.what); ++j) std::copy_n(registers_[operands[j]], n, wide_[j]);
      compute<double>(i, wide_[0], wide_[1], wide_[2], wide, n);
    }
    const bool sum = i.what == Do::AddNumber || (i.what == Do::AddScaled && i.number == 1);
    if (sum && format_.rounding == c10::formats::Rounding::Down) { // a sum that is 0 is -0 unless both terms are positive
      for (int64_t e = 0; e < n; ++e) {
        const bool positive = !std::signbit(a[e]) && !(i.what == Do::AddNumber ? std::signbit(i.number) : std::signbit(b[e]));
        if (in_t && result_[e] == 0) result_[e] = positive ? T{0} : -T{0};
        if (!in_t && wide[e] == 0) wide[e] = positive ? 0.0 : -0.0;
      }
    }
    if (in_t) {
      round(step, codes, n, words);
    } else {
      encode(wide, codes, n, words);
      if (step.read) decode(k_, format_, codes, to, n);
    }
  }
}

// The result to the format: into memory where it is stored, into its register where it is read.
template <typename T>
void ProgramBlocks<T>::round(const CompiledProgram::Step& step, char* codes, int64_t n, const RandomWords& words) {
  T* to = registers_[step.instruction.to];
  if (!step.stored && !is_stochastic(format_.rounding)) {
    if constexpr (std::is_same_v<T, float>) {
      if (k_.round_float(format_, result_, to, n)) return;
    } else {
      if (k_.round_double(format_, result_, to, n)) return;
    }
  }
  encode(result_, codes, n, words);
  if (step.read) decode(k_, format_, codes, to, n);
}

template class ProgramBlocks<float>;
template class ProgramBlocks<double>;

} // namespace at::formats
