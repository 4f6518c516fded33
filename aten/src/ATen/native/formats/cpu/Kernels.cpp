// Chooses the table of the widest vector unit that the processor has.
// TORCH_DTYPES_CPU_CAPABILITY=default|avx2|avx512 narrows the choice (for tests and measurements),
// as ATEN_CPU_CAPABILITY does for PyTorch's own kernels.
#include <ATen/native/formats/cpu/BlockKernel.h>
#include <ATen/native/formats/cpu/InstructionKernel.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <ATen/native/formats/cpu/ScaledKernel.h>
#include <ATen/native/formats/cpu/StepKernel.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace at::formats {

#define TD_FILL(file) void fill_##file(CpuKernels& kernels);
#define TD_DECLARE(CAPABILITY)                        \
  namespace CAPABILITY {                              \
  AT_FORALL_KERNEL_FILES(TD_FILL)                     \
  void fill_block(BlockKernels& kernels);             \
  void fill_scaled(ScaledKernels& kernels);           \
  void fill_instruction(InstructionKernels& kernels); \
  void fill_step(StepKernels& kernels);               \
  }
TD_DECLARE(DEFAULT)
#ifdef TORCH_DTYPES_HAVE_AVX2
TD_DECLARE(AVX2)
#else
namespace AVX2 = DEFAULT;
#endif
#ifdef TORCH_DTYPES_HAVE_AVX512
TD_DECLARE(AVX512)
#else
namespace AVX512 = DEFAULT;
#endif
#undef TD_DECLARE
#undef TD_FILL

namespace {

#define TD_FILL(file) fill_##file(k);
#define TD_TABLE(CAPABILITY, NAME)  \
  [] {                              \
    using namespace CAPABILITY;     \
    CpuKernels k{};                 \
    k.name = NAME;                  \
    AT_FORALL_KERNEL_FILES(TD_FILL) \
    return k;                       \
  }()

CpuKernels choose() {
  const char* wish = std::getenv("TORCH_DTYPES_CPU_CAPABILITY");
  const std::string limit = wish ? wish : "avx512";
  if (limit != "default" && limit != "avx2" && limit != "avx512") {
    throw std::invalid_argument(
        "TORCH_DTYPES_CPU_CAPABILITY: expected default, avx2 or avx512, but got " + limit);
  }
#if defined(TORCH_DTYPES_HAVE_AVX512) && !defined(TORCH_DTYPES_HAVE_AVX2)
  if (limit == "avx2") {
    throw std::invalid_argument(
        "TORCH_DTYPES_CPU_CAPABILITY: expected default or avx512, for which this copy was built, "
        "but got avx2; build it with make VECTOR_UNITS=all");
  }
#endif
#ifdef TORCH_DTYPES_HAVE_AVX512
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("fma");
  if (avx512 && limit == "avx512") return TD_TABLE(AVX512, "avx512");
#endif
#ifdef TORCH_DTYPES_HAVE_AVX2
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && limit != "default") return TD_TABLE(AVX2, "avx2");
#endif
  return TD_TABLE(DEFAULT, "default");
}

// Fills another table for the chosen capability: the baseline's entries, then those that its vector
// unit replaces.
template <typename Table>
Table filled_table(const std::string& capability, void (&baseline)(Table&), void (&avx2)(Table&),
                   void (&avx512)(Table&)) {
  Table k{};
  baseline(k);
  if (capability == "avx2") avx2(k);
  if (capability == "avx512") avx512(k);
  return k;
}

} // namespace

const CpuKernels& cpu_kernels() {
  static const CpuKernels kernels = choose();
  return kernels;
}

const BlockKernels& block_kernels(const char* capability) {
  static const BlockKernels kernels = filled_table<BlockKernels>(
      capability, DEFAULT::fill_block, AVX2::fill_block, AVX512::fill_block);
  return kernels;
}

const ScaledKernels& scaled_kernels(const char* capability) {
  static const ScaledKernels kernels = filled_table<ScaledKernels>(
      capability, DEFAULT::fill_scaled, AVX2::fill_scaled, AVX512::fill_scaled);
  return kernels;
}

const InstructionKernels& instruction_kernels(const char* capability) {
  static const InstructionKernels kernels = filled_table<InstructionKernels>(
      capability, DEFAULT::fill_instruction, AVX2::fill_instruction, AVX512::fill_instruction);
  return kernels;
}

const StepKernels& step_kernels(const char* capability) {
  static const StepKernels kernels =
      filled_table<StepKernels>(capability, DEFAULT::fill_step, AVX2::fill_step, AVX512::fill_step);
  return kernels;
}

} // namespace at::formats
