// Looks results up by code.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <cstring>

#ifdef __SSE2__
#include <immintrin.h> // gathers of bytes, which compilers do not generate
#endif

namespace at::formats::CPU_CAPABILITY {
namespace {

template <typename Code>
__attribute__((noinline)) void look_up_as(const float* __restrict table,
                                          const Code* __restrict codes, float* __restrict values,
                                          int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = table[static_cast<int32_t>(codes[i])];
}

void look_up(const float* table, const void* codes, int itemsize, float* values, int64_t n) {
  if (itemsize == 1) look_up_as(table, static_cast<const uint8_t*>(codes), values, n);
  else look_up_as(table, static_cast<const uint16_t*>(codes), values, n);
}

void look_up_pair(const uint8_t* table, const uint8_t* high, const uint8_t* low, uint8_t* out,
                  int64_t n) {
  int64_t done = 0;
#ifdef CPU_CAPABILITY_AVX512
  constexpr __mmask16 all = 0xFFFF;
  for (; done + 16 <= n; done += 16) {
    const __m512i h = _mm512_maskz_cvtepu8_epi32(
        all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(high + done)));
    const __m512i l = _mm512_maskz_cvtepu8_epi32(
        all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(low + done)));
    const __m512i index = _mm512_or_si512(_mm512_maskz_slli_epi32(all, h, 8), l);
    const __m512i found = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, index, table, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + done),
                     _mm512_maskz_cvtepi32_epi8(all, found));
  }
#endif
#ifdef __SSE2__
  // Eight indices and eight results go through registers.
  for (; done + 8 <= n; done += 8) {
    const __m128i index =
        _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(low + done)),
                          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high + done)));
    const auto first = static_cast<uint64_t>(_mm_cvtsi128_si64(index));
    const auto last = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(index, index)));
    uint64_t found = 0;
    for (int k = 0; k < 4; ++k) {
      found |= uint64_t{table[first >> (16 * k) & 0xFFFF]} << (8 * k);
      found |= uint64_t{table[last >> (16 * k) & 0xFFFF]} << (8 * k + 32);
    }
    std::memcpy(out + done, &found, sizeof found);
  }
#endif
  for (; done < n; ++done) out[done] = table[high[done] << 8 | low[done]];
}

} // namespace

void fill_table(CpuKernels& k) {
  k.look_up = &look_up;
  k.look_up_pair = &look_up_pair;
}

} // namespace at::formats::CPU_CAPABILITY
