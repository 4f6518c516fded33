// Results looked up by code.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

template <typename Code>
__attribute__((noinline)) void look_up_as(const float* __restrict table, const Code* __restrict codes, float* __restrict values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = table[static_cast<int32_t>(codes[i])];
}

void look_up(const float* table, const void* codes, int itemsize, float* values, int64_t n) {
  if (itemsize == 1) look_up_as(table, static_cast<const uint8_t*>(codes), values, n);
  else look_up_as(table, static_cast<const uint16_t*>(codes), values, n);
}

} // namespace

void fill_table(CpuKernels& k) {
  k.look_up = &look_up;
}

} // namespace at::formats::CPU_CAPABILITY
