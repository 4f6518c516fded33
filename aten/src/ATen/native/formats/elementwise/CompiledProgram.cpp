// Prepares a block program for one format: the destinations of results, and tables of results by
// codes. The same arithmetic fills the tables, for all codes.
#include <ATen/native/formats/elementwise/BlockArithmetic.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

namespace at::formats {

using c10::formats::is_stochastic;

static bool is_unary(Do what) {
  return operands_of(what) == 1 && !rounds_nothing(what);
}

constexpr int64_t kBytes = 256, kPairs = kBytes * kBytes;

CompiledProgram::CompiledProgram(const CpuKernels& kernels, const Program& program,
                                 const Format& format, int64_t elements)
    : kernels(kernels),
      format(format) {
  for (size_t i = 0; i < program.instructions.size(); ++i)
    steps.push_back({program.instructions[i], false, false, {}, {}, {}, i});
  const bool narrow = format.bits <= 16 && format.fits_float() && !is_stochastic(format.rounding);
  if (narrow && format.bits <= 8 && elements >= 4 * kPairs) merge_into_pairs();
  if (narrow && elements >= int64_t{4} << format.bits) merge_into_tables();
  find_uses();
}

bool CompiledProgram::is_last(size_t step) const {
  const int to = steps[step].instruction.to;
  return std::none_of(steps.begin() + step + 1, steps.end(),
                      [to](const Step& s) { return s.instruction.to == to; });
}

// Whether a step reads a register's value; tables take codes from memory.
static bool reads(const CompiledProgram::Step& step, int r) {
  const Instruction& i = step.instruction;
  if (!step.table.empty() || !step.pairs.empty()) return false;
  const int operands = operands_of(i.what);
  return i.a == r || (operands > 1 && i.b == r) || (operands > 2 && i.c == r);
}

// ---- two codes ----

// The origin of a register's value: a chain of instructions on one code in memory.
struct CompiledProgram::Origin {
  int root; // the register whose memory has the code; -1: no single code
  std::vector<Instruction> chain;
};

// Codes of an instruction's results by the codes of one or two roots.
std::vector<uint8_t> CompiledProgram::results_of_pairs(const Instruction& last,
                                                       const Origin* origins,
                                                       const std::vector<int>& roots) const {
  Program program;
  const uint8_t operands[] = {last.a, last.b, last.c};
  int from[3] = {};
  for (int j = 0; j < operands_of(last.what); ++j) {
    const Origin& origin = origins[operands[j]];
    from[j] = origin.root == roots[0] ? 0 : 1;
    for (const Instruction& link : origin.chain) {
      program.add(link.what, kTensors + j, from[j], 0, 0, link.number);
      from[j] = kTensors + j;
    }
  }
  program.add(last.what, 2, from[0], from[1], from[2], last.number);
  const CompiledProgram plain(kernels, program, format, 0);
  std::vector<uint8_t> table(kPairs + kPairPadding);
  at::parallel_for(0, kPairs / kProgramBlock, 4, [&](int64_t begin, int64_t end) {
    ProgramBlocks<float> blocks(plain, format);
    alignas(64) uint8_t high[kProgramBlock], low[kProgramBlock];
    for (int64_t first = begin * kProgramBlock; first < end * kProgramBlock;
         first += kProgramBlock) {
      for (int64_t c = 0; c < kProgramBlock; ++c) {
        high[c] = static_cast<uint8_t>((first + c) >> 8);
        low[c] = static_cast<uint8_t>(c);
      }
      char* at[kTensors] = {reinterpret_cast<char*>(high), reinterpret_cast<char*>(low),
                            reinterpret_cast<char*>(table.data() + first)};
      blocks.run(at, kProgramBlock, 0, {});
    }
  });
  return table;
}

// Merges instructions whose operands come from two codes: an average and a gradient, a parameter
// and its velocity. Instructions with one operand go into the tables of those that read them.
void CompiledProgram::merge_into_pairs() {
  Origin origins[kRegisters];
  for (int r = 0; r < kRegisters; ++r) origins[r] = {r < kTensors ? r : -1, {}};
  for (size_t s = 0; s < steps.size(); ++s) {
    Instruction& i = steps[s].instruction;
    const uint8_t operands[] = {i.a, i.b, i.c};
    std::vector<int> roots;
    for (int j = 0; j < operands_of(i.what); ++j) {
      const int root = origins[operands[j]].root;
      if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
    }
    const bool known = std::find(roots.begin(), roots.end(), -1) == roots.end();
    const bool stored = i.to < kTensors && is_last(s);
    if (known && operands_of(i.what) == 1 && !stored) {
      Origin origin = origins[i.a];
      origin.chain.push_back(i);
      origins[i.to] = std::move(origin);
      continue;
    }
    const bool merges =
        known && operands_of(i.what) > 1 && roots.size() <= 2 && (stored || i.to >= kTensors);
    if (merges) {
      steps[s].pairs = results_of_pairs(i, origins, roots);
      i.a = static_cast<uint8_t>(roots.front());
      i.b = static_cast<uint8_t>(roots.back());
    }
    for (Origin& origin : origins) {
      if (origin.root == i.to) origin.root = -1; // the code that it was made of is overwritten
    }
    origins[i.to] = {merges || stored ? i.to : -1, {}};
  }
  remove_unread();
}

// Removes steps whose results are neither stored nor read any more.
void CompiledProgram::remove_unread() {
  bool live[kRegisters] = {};
  for (size_t s = steps.size(); s-- > 0;) {
    const int to = steps[s].instruction.to;
    if (steps[s].pairs.empty() && !live[to] && !(to < kTensors && is_last(s))) {
      steps.erase(steps.begin() + s);
      continue;
    }
    live[to] = false;
    for (int r = 0; r < kRegisters; ++r) live[r] |= reads(steps[s], r);
  }
}

// ---- one code ----

// Results of a chain of instructions, for each code.
std::vector<float> CompiledProgram::results_of_codes(const std::vector<Instruction>& chain) const {
  Program program;
  int from = 0;
  for (const Instruction& i : chain) {
    program.add(i.what, kTensors, from, 0, 0, i.number);
    from = kTensors;
  }
  program.add(Do::Copy, kTensors + 1, from); // keeps the last result in its register
  const CompiledProgram plain(kernels, program, format, 0);
  const int kept = chain.empty() ? 0 : kTensors;
  const int64_t codes = int64_t{1} << format.bits;
  // Memory may hold any code of the storage dtype's width.
  std::vector<float> table(size_t{1} << (8 * format.itemsize()), 0.0f);
  at::parallel_for(
      0, (codes + kProgramBlock - 1) / kProgramBlock, 4, [&](int64_t begin, int64_t last) {
        ProgramBlocks<float> blocks(plain, format);
        alignas(64) uint16_t wide[kProgramBlock];
        alignas(64) uint8_t narrow[kProgramBlock];
        for (int64_t block = begin; block < last; ++block) {
          const int64_t first = block * kProgramBlock, n = std::min(kProgramBlock, codes - first);
          for (int64_t c = 0; c < n; ++c) {
            wide[c] = static_cast<uint16_t>(first + c);
            narrow[c] = static_cast<uint8_t>(first + c);
          }
          char* at[kTensors] = {format.itemsize() == 1 ? reinterpret_cast<char*>(narrow)
                                                       : reinterpret_cast<char*>(wide)};
          blocks.run(at, n, 0, {});
          std::copy_n(blocks.value(kept), n, table.data() + first);
        }
      });
  return table;
}

// Merges a chain of instructions on one value from a tensor's memory into a table of results by
// code. Examples: an average that decays before its use, a denominator.
void CompiledProgram::merge_into_tables() {
  std::vector<Step> merged;
  bool in_memory[kRegisters]; // whether a register's value equals its memory's
  std::fill_n(in_memory, kRegisters, true);
  for (size_t i = 0; i < steps.size();) {
    const Instruction& head = steps[i].instruction;
    size_t end = i;
    if (is_unary(head.what) && head.a < kTensors && in_memory[head.a]) {
      while (end < steps.size() && is_unary(steps[end].instruction.what) &&
             steps[end].instruction.to == head.to &&
             (end == i || steps[end].instruction.a == head.to)) {
        ++end;
      }
    }
    const bool again = std::any_of(steps.begin() + end, steps.end(),
                                   [&](const Step& s) { return s.instruction.to == head.to; });
    // the last value written to a tensor must be encoded
    if (end == i || (head.to < kTensors && !again)) {
      in_memory[head.to] = true;
      merged.push_back(std::move(steps[i++]));
      continue;
    }
    in_memory[head.to] = false;
    std::vector<Instruction> chain;
    for (size_t j = i; j < end; ++j) chain.push_back(steps[j].instruction);
    merged.push_back(std::move(steps[i]));
    merged.back().table = results_of_codes(chain);
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
    for (int j = 0; j < operands_of(in.what); ++j) {
      if (loaded[operands[j]] || !reads(step, operands[j])) continue;
      step.loads[j] = loaded[operands[j]] = true;
    }
    loaded[in.to] = step.pairs.empty();
    bool written = false;
    for (size_t j = i + 1; j < steps.size(); ++j) {
      step.read |= reads(steps[j], in.to) && !written;
      written |= steps[j].instruction.to == in.to;
    }
    step.stored = in.to < kTensors && !written;
  }
}

} // namespace at::formats
