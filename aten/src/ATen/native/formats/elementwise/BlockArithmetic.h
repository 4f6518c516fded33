// Instructions of a block program on blocks of machine numbers in cache.
#pragma once
#include <ATen/Observation.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <ATen/native/formats/elementwise/BlockProgram.h>

namespace at::formats {

inline constexpr int64_t kProgramBlock = 1024;

// A program for one format: the destination of each result, and tables of results that depend on
// one code alone, or on two of 8 bits.
class CompiledProgram {
 public:
  // elements: their number in all runs, since tables must pay for themselves.
  CompiledProgram(const CpuKernels& kernels, const Program& program, const Format& format,
                  int64_t elements);

  struct Step {
    Instruction instruction;
    bool stored;             // written to the tensor's memory: no later step writes it
    bool read;               // a later step reads its register
    bool loads[3]{};         // operands that come from memory, here for the first time
    // Results by the operand's code, of this instruction and those that were merged into it.
    std::vector<float> table;
    std::vector<uint8_t> pairs; // codes of the results, by those of two registers in memory
    size_t place; // the instruction's index in the program
  };

  const CpuKernels& kernels;
  Format format;
  std::vector<Step> steps;

 private:
  struct Origin;
  std::vector<float> results_of_codes(const std::vector<Instruction>& chain) const;
  std::vector<uint8_t> results_of_pairs(const Instruction& last, const Origin* origins,
                                        const std::vector<int>& roots) const;
  void merge_into_pairs();
  void remove_unread();
  void merge_into_tables();
  void find_uses();
  bool is_last(size_t step) const; // whether no later step writes its register
};

// The blocks of one thread.
template <typename T>
class ProgramBlocks {
 public:
  // recorders: one for each register that is written, or nullptr.
  ProgramBlocks(const CompiledProgram& program, const Format& format,
                const Recorder* recorders = nullptr);

  // Runs the program over n elements. at: their addresses in each tensor. first: the index of the
  // first element, for random words.
  void run(char* const* at, int64_t n, int64_t first, c10::ArrayRef<uint64_t> seeds);
  const T* value(int r) const { return registers_[r]; }

 private:
  template <typename U>
  void compute(const Instruction& i, const U* a, const U* b, const U* c, U* out, int64_t n);
  bool compute_mixed(const Instruction& i, T* out, int64_t n);
  bool in_float(const Instruction& i) const;
  // elementwise() needs float64 too when it is observed.
  bool wants_double() const { return seen_ && format_.significand_bits() > 12; }
  void round(const CompiledProgram::Step& step, char* codes, int64_t n, const RandomWords& words);
  template <typename U>
  void encode(U* values, char* codes, int64_t n, const RandomWords& words);

  const CompiledProgram& program_;
  const Recorder* recorders_;
  const Recorder* seen_{nullptr}; // of the running instruction
  Format format_, unrounded_; // unrounded_: for results that are values of the format already
  const CpuKernels& k_;
  alignas(64) T registers_[kRegisters][kProgramBlock];
  alignas(64) T result_[kProgramBlock];
  alignas(64) double wide_[4][kProgramBlock];
  alignas(64) char codes_[kProgramBlock * 8];
  // Codes of registers without a tensor, if pairs have given them.
  alignas(64) char between_[kRegisters - kTensors][kProgramBlock];
};

} // namespace at::formats
