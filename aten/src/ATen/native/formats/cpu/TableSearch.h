// Loops over tables of values: codes looked up, and numbers rounded by a search among thresholds.
#pragma once
#include <c10/formats/TableSteps.h>

#include <cmath>
#include <limits>
#include <type_traits>

#ifdef CPU_CAPABILITY_AVX512
#include <immintrin.h>
#endif

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

template <typename T, typename Code>
__attribute__((noinline)) void look_values_up(const T* __restrict table, uint32_t mask, const Code* __restrict codes, T* __restrict values,
                                              int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = table[static_cast<int32_t>(codes[i] & mask)];
}

template <typename T>
void decode_table_all(const Format& f, const void* codes, T* values, int64_t n) {
  const ValueTable& t = table_of(f);
  const T* by_code = nullptr;
  if constexpr (std::is_same_v<T, float>) by_code = t.by_code_float.data();
  else by_code = t.by_code.data();
  const auto mask = static_cast<uint32_t>(f.code_mask());
  if (f.itemsize() == 1) look_values_up(by_code, mask, static_cast<const uint8_t*>(codes), values, n);
  else look_values_up(by_code, mask, static_cast<const uint16_t*>(codes), values, n);
}

// Tables: a search among thresholds whose beginning the leading bits of the number say.
template <typename T>
const auto& steps_of(const Format& f) {
  if constexpr (std::is_same_v<T, float>) return steps_of_float(f);
  else return steps_of_double(f);
}

#ifdef CPU_CAPABILITY_AVX512
// 16 numbers at a time, by gathers, which compilers avoid; the codes' bits together, and how many numbers were done.
template <typename Code, int rounds>
inline int64_t gather_steps(const TableSteps<float>& s, int32_t nan_code, const float* values, Code* codes, int64_t n, int32_t& undecided) {
  constexpr __mmask16 all = 0xFFFF;
  const __m512i most = _mm512_set1_epi32(0x7FFFFFFF), top = _mm512_set1_epi32(static_cast<int>(0x80000000));
  const __m512i infinity = _mm512_set1_epi32(0x7F800000), nan = _mm512_set1_epi32(nan_code), zero = _mm512_setzero_si512();
  const __m128i shift = _mm_cvtsi32_si128(s.shift);
  __m512i seen = zero;
  int64_t done = 0;
  for (; done + 16 <= n; done += 16) {
    const __m512i u = _mm512_loadu_si512(values + done);
    const __m512i key = _mm512_xor_si512(u, _mm512_and_si512(_mm512_srai_epi32(u, 31), most));
    __m512i at = _mm512_mask_i32gather_epi32(zero, all, _mm512_srl_epi32(_mm512_xor_si512(key, top), shift), s.first.data(), 4);
    for (int k = rounds - 1; k >= 0; --k) {
      const __m512i bound = _mm512_mask_i32gather_epi32(zero, all, at, s.thresholds.data() + (1 << k) - 1, 4);
      at = _mm512_mask_add_epi32(at, _mm512_cmple_epi32_mask(bound, key), at, _mm512_set1_epi32(1 << k));
    }
    __m512i code = _mm512_mask_i32gather_epi32(zero, all, at, s.codes.data(), 4);
    code = _mm512_mask_mov_epi32(code, _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, most), infinity), nan);
    seen = _mm512_or_si512(seen, code);
    if constexpr (sizeof(Code) == 1) _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + done), _mm512_maskz_cvtepi32_epi8(all, code));
    else _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + done), _mm512_maskz_cvtepi32_epi16(all, code));
  }
  undecided |= _mm512_movepi32_mask(seen) ? -1 : 0;
  return done;
}
#endif

// Gives back whether it left anything undecided. In blocks, whose steps vectorise one by one.
template <typename T, typename Code, int rounds>
__attribute__((noinline)) bool search_steps(const TableSteps<T>& s, int32_t nan_code, const T* __restrict values, Code* __restrict codes, int64_t n) {
  using Bits = typename Machine<T>::Bits;
  using Signed = typename Machine<T>::Signed;
  constexpr Bits sign = Bits{1} << (Machine<T>::width - 1);
  constexpr int64_t kBlock = 256;
  const Signed* const thresholds = s.thresholds.data();
  const int32_t *const first = s.first.data(), *const step_codes = s.codes.data();
  alignas(64) Signed keys[kBlock];
  alignas(64) int32_t at[kBlock];
  int32_t undecided = 0;
  int64_t done = 0;
#ifdef CPU_CAPABILITY_AVX512
  if constexpr (sizeof(T) == sizeof(float)) done = gather_steps<Code, rounds>(s, nan_code, values, codes, n, undecided);
#endif
  for (; done < n; done += kBlock) {
    const int64_t m = n - done < kBlock ? n - done : kBlock;
    for (int64_t i = 0; i < m; ++i) {
      const auto u = bits_as<Signed>(values[done + i]);
      keys[i] = u ^ ((u >> (Machine<T>::width - 1)) & static_cast<Signed>(sign - 1));
      at[i] = static_cast<int32_t>((static_cast<Bits>(keys[i]) ^ sign) >> s.shift);
    }
    for (int64_t i = 0; i < m; ++i) at[i] = first[at[i]];
    for (int k = rounds - 1; k >= 0; --k) {
      const Signed* const here = thresholds + (1 << k) - 1;
      for (int64_t i = 0; i < m; ++i) at[i] += here[at[i]] <= keys[i] ? 1 << k : 0;
    }
    for (int64_t i = 0; i < m; ++i) {
      const int32_t code = (bits_as<Bits>(values[done + i]) & (sign - 1)) > infinity_bits<T>() ? nan_code : step_codes[at[i]];
      codes[done + i] = static_cast<Code>(code);
      undecided |= code;
    }
  }
  return undecided < 0;
}

template <typename T, typename Code>
void encode_by_steps(const Format& f, const T* values, Code* codes, int64_t n) {
  const auto& s = steps_of<T>(f);
  const auto run = [&](auto rounds) {
    const bool undecided = search_steps<T, Code, decltype(rounds)::value>(s, static_cast<int32_t>(f.nan_code()), values, codes, n);
    if (!undecided) return;
    for (int64_t i = 0; i < n; ++i) { // among the subnormal numbers of T
      if (std::fabs(values[i]) < std::numeric_limits<T>::min()) codes[i] = static_cast<Code>(s.code_of(values[i]));
    }
  };
  switch (s.rounds) {
    case 0: return run(std::integral_constant<int, 0>{});
    case 1: return run(std::integral_constant<int, 1>{});
    case 2: return run(std::integral_constant<int, 2>{});
    case 3: return run(std::integral_constant<int, 3>{});
    case 4: return run(std::integral_constant<int, 4>{});
    case 5: return run(std::integral_constant<int, 5>{});
    case 6: return run(std::integral_constant<int, 6>{});
    case 7: return run(std::integral_constant<int, 7>{});
    case 8: return run(std::integral_constant<int, 8>{});
    default: return run(std::integral_constant<int, 16>{});
  }
}

} // namespace
} // namespace at::formats::CPU_CAPABILITY
