// Loops over tables of values: look codes up, and round numbers by a search among thresholds.
#pragma once
#include <ATen/native/formats/cpu/Loops.h>
#include <c10/formats/tables/TableSteps.h>

#include <cmath>
#include <limits>
#include <type_traits>

#ifdef CPU_CAPABILITY_AVX512
#include <immintrin.h> // gathers, which compilers avoid
#endif

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

template <typename T, typename Code>
__attribute__((noinline)) void look_values_up(const T* __restrict table, uint32_t mask,
                                              const Code* __restrict codes, T* __restrict values,
                                              int64_t n) {
  int64_t done = 0;
#ifdef CPU_CAPABILITY_AVX512
  if constexpr (sizeof(T) == sizeof(float)) {
    constexpr __mmask16 all = 0xFFFF;
    const __m512i kept = _mm512_set1_epi32(static_cast<int>(mask));
    for (; done + 16 <= n; done += 16) {
      __m512i code;
      if constexpr (sizeof(Code) == 1)
        code = _mm512_maskz_cvtepu8_epi32(
            all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + done)));
      else
        code = _mm512_maskz_cvtepu16_epi32(
            all, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + done)));
      const __m512 found = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), all,
                                                    _mm512_and_si512(code, kept), table, 4);
      _mm512_storeu_ps(values + done, found);
    }
  }
#endif
  for (; done < n; ++done) values[done] = table[static_cast<int32_t>(codes[done] & mask)];
}

template <typename T>
void decode_table_all(const Format& f, const void* codes, T* values, int64_t n) {
  const ValueTable& t = table_of(f);
  const T* by_code = nullptr;
  if constexpr (std::is_same_v<T, float>) by_code = t.by_code_float.data();
  else by_code = t.by_code.data();
  const auto mask = static_cast<uint32_t>(f.code_mask());
  if (f.itemsize() == 1)
    look_values_up(by_code, mask, static_cast<const uint8_t*>(codes), values, n);
  else look_values_up(by_code, mask, static_cast<const uint16_t*>(codes), values, n);
}

// ---- float32: one look at a bucket (TableBuckets) ----

inline constexpr int64_t kSearchBlock = 256; // the loops over a block vectorise one by one

template <typename Code>
__attribute__((noinline)) void search_small(const uint32_t* __restrict buckets,
                                            const float* __restrict values, Code* __restrict codes,
                                            int64_t n) {
  int64_t done = 0;
#ifdef CPU_CAPABILITY_AVX512
  constexpr __mmask16 all = 0xFFFF;
  const __m512i ones = _mm512_set1_epi32(0xFFFF), last_byte = _mm512_set1_epi32(0xFF);
  for (; done + 16 <= n; done += 16) {
    const __m512i u = _mm512_loadu_si512(values + done);
    const __m512i bucket = _mm512_mask_i32gather_epi32(
        _mm512_setzero_si512(), all, _mm512_maskz_srli_epi32(all, u, 16), buckets, 4);
    const __mmask16 from_threshold =
        _mm512_cmpge_epu32_mask(_mm512_or_si512(_mm512_maskz_slli_epi32(all, u, 16), ones), bucket);
    const __m512i code = _mm512_mask_srli_epi32(bucket, from_threshold, bucket, 8);
    if constexpr (sizeof(Code) == 1) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + done),
                       _mm512_maskz_cvtepi32_epi8(all, code));
    } else {
      const __m512i alone = _mm512_and_si512(code, last_byte);
      if constexpr (sizeof(Code) == 2)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + done),
                            _mm512_maskz_cvtepi32_epi16(all, alone));
      else _mm512_storeu_si512(codes + done, alone);
    }
  }
#endif
  alignas(64) uint32_t bucket[kSearchBlock];
  for (; done < n; done += kSearchBlock) {
    const int64_t m = n - done < kSearchBlock ? n - done : kSearchBlock;
    for (int64_t i = 0; i < m; ++i) bucket[i] = buckets[bits_as<uint32_t>(values[done + i]) >> 16];
    for (int64_t i = 0; i < m; ++i) {
      const uint32_t reached = bits_as<uint32_t>(values[done + i]) << 16 | 0xFFFF;
      codes[done + i] =
          static_cast<Code>((reached >= bucket[i] ? bucket[i] >> 8 : bucket[i]) & 0xFF);
    }
  }
}

// Returns whether any element is undecided.
template <typename Code>
__attribute__((noinline)) bool search_large(const TableBuckets& b, const float* __restrict values,
                                            Code* __restrict codes, int64_t n) {
  constexpr int kAbove = 2 * TableBuckets::kCodeBits;
  constexpr uint64_t ones = (uint64_t{1} << kAbove) - 1;
  uint32_t seen = 0;
  int64_t done = 0;
#ifdef CPU_CAPABILITY_AVX512
  constexpr __mmask16 all = 0xFFFF;
  constexpr __mmask8 half = 0xFF;
  const __m512i low = _mm512_set1_epi32(static_cast<int>(TableBuckets::kLow)),
                shifts = _mm512_set1_epi32(31);
  const __m512i below = _mm512_set1_epi64(static_cast<long long>(ones)),
                code_mask = _mm512_set1_epi64(TableBuckets::kCode);
  __m512i any = _mm512_setzero_si512();
  const auto decide = [&](__m256i u, __m256i place) TD_INLINE_LAMBDA {
    const __m512i bucket =
        _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), half, place, b.large.data(), 8);
    const __m512i reached = _mm512_or_si512(
        _mm512_maskz_slli_epi64(half, _mm512_maskz_cvtepu32_epi64(half, u), kAbove), below);
    const __mmask8 from_threshold = _mm512_cmpge_epu64_mask(reached, bucket);
    const __m512i code = _mm512_and_si512(
        _mm512_mask_srli_epi64(bucket, from_threshold, bucket, TableBuckets::kCodeBits), code_mask);
    any = _mm512_or_si512(any, code);
    return code;
  };
  const auto store = [&](Code* to, __m512i code) TD_INLINE_LAMBDA {
    if constexpr (sizeof(Code) == 1)
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm512_maskz_cvtepi64_epi8(half, code));
    else if constexpr (sizeof(Code) == 2)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_maskz_cvtepi64_epi16(half, code));
    else
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtepi64_epi32(half, code));
  };
  for (; done + 16 <= n; done += 16) {
    const __m512i u = _mm512_loadu_si512(values + done);
    const __m512i first = _mm512_mask_i32gather_epi32(
        _mm512_setzero_si512(), all, _mm512_maskz_srli_epi32(all, u, TableBuckets::kLowBits),
        b.places.data(), 4);
    const __m512i within =
        _mm512_maskz_srlv_epi32(all, _mm512_and_si512(u, low), _mm512_and_si512(first, shifts));
    const __m512i place = _mm512_add_epi32(_mm512_maskz_srli_epi32(all, first, 5), within);
    store(codes + done,
          decide(_mm512_maskz_extracti64x4_epi64(half, u, 0),
                 _mm512_maskz_extracti64x4_epi64(half, place, 0)));
    store(codes + done + 8,
          decide(_mm512_maskz_extracti64x4_epi64(half, u, 1),
                 _mm512_maskz_extracti64x4_epi64(half, place, 1)));
  }
  seen = _mm512_test_epi64_mask(any, _mm512_set1_epi64(TableBuckets::kUndecided)) != 0
      ? TableBuckets::kUndecided
      : 0;
#endif
  const uint32_t* const places = b.places.data();
  const uint64_t* const large = b.large.data();
  for (; done < n; ++done) {
    const auto u = bits_as<uint32_t>(values[done]);
    const uint32_t first = places[u >> TableBuckets::kLowBits];
    const uint64_t bucket = large[(first >> 5) + ((u & TableBuckets::kLow) >> (first & 31))];
    const bool from_threshold = (uint64_t{u} << kAbove | ones) >= bucket;
    const uint32_t code =
        static_cast<uint32_t>(from_threshold ? bucket >> TableBuckets::kCodeBits : bucket) &
        TableBuckets::kCode;
    codes[done] = static_cast<Code>(code);
    seen |= code;
  }
  return (seen & TableBuckets::kUndecided) != 0;
}

// Whether TableBuckets::small may leave any of the numbers undecided.
__attribute__((noinline)) bool any_smallest(const float* values, int64_t n) {
  uint32_t any = 0;
  for (int64_t i = 0; i < n; ++i)
    any |= static_cast<uint32_t>((bits_as<uint32_t>(values[i]) & 0x7FFFFFFF) - 1 < 0xFFFF);
  return any != 0;
}

template <typename Code>
void search(const TableSteps<float>& s, const float* values, Code* codes, int64_t n) {
  const TableBuckets& b = s.begin;
  const bool is_small = !b.small.empty();
  if (is_small && !b.smallest) return search_small(b.small.data(), values, codes, n);
  constexpr int64_t kBlock = 1024; // stays in the first cache for the second look
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t m = n - done < kBlock ? n - done : kBlock;
    if (is_small) search_small(b.small.data(), values + done, codes + done, m);
    if (is_small ? !any_smallest(values + done, m)
                 : !search_large(b, values + done, codes + done, m))
      continue;
    for (int64_t i = done; i < done + m; ++i) {
      const auto u = bits_as<uint32_t>(values[i]);
      if (!is_small) codes[i] = static_cast<Code>(b.code_by_bucket(u));
      else if (b.leaves(u)) codes[i] = static_cast<Code>(b.code_by_run(u));
    }
  }
}

// ---- float64: a search that the leading bits begin (TableIndex) ----

// Returns whether any element is undecided.
template <typename Code, int rounds>
__attribute__((noinline)) bool search_steps(const TableSteps<double>& s,
                                            const double* __restrict values, Code* __restrict codes,
                                            int64_t n) {
  using M = Machine<double>;
  constexpr uint64_t sign = uint64_t{1} << (M::width - 1);
  const int64_t* const thresholds = s.thresholds.data();
  const int32_t *const first = s.begin.first.data(), *const step_codes = s.codes.data();
  const int32_t nan_code = s.nan_code;
  alignas(64) int64_t keys[kSearchBlock];
  alignas(64) int32_t at[kSearchBlock];
  int32_t undecided = 0;
  for (int64_t done = 0; done < n; done += kSearchBlock) {
    const int64_t m = n - done < kSearchBlock ? n - done : kSearchBlock;
    for (int64_t i = 0; i < m; ++i) {
      const auto u = bits_as<int64_t>(values[done + i]);
      keys[i] = u ^ ((u >> (M::width - 1)) & static_cast<int64_t>(sign - 1));
      at[i] = static_cast<int32_t>((static_cast<uint64_t>(keys[i]) ^ sign) >> s.begin.shift);
    }
    for (int64_t i = 0; i < m; ++i) at[i] = first[at[i]];
    for (int k = rounds - 1; k >= 0; --k) {
      const int64_t* const here = thresholds + (1 << k) - 1;
      for (int64_t i = 0; i < m; ++i) at[i] += here[at[i]] <= keys[i] ? 1 << k : 0;
    }
    for (int64_t i = 0; i < m; ++i) {
      const int32_t code =
          (bits_as<uint64_t>(values[done + i]) & (sign - 1)) > infinity_bits<double>()
          ? nan_code
          : step_codes[at[i]];
      codes[done + i] = static_cast<Code>(code);
      undecided |= code;
    }
  }
  return undecided < 0;
}

template <typename Code>
void search(const TableSteps<double>& s, const double* values, Code* codes, int64_t n) {
  const auto run = [&](auto rounds) {
    if (!search_steps<Code, decltype(rounds)::value>(s, values, codes, n)) return;
    for (int64_t i = 0; i < n; ++i) { // subnormal numbers
      if (std::fabs(values[i]) < std::numeric_limits<double>::min())
        codes[i] = static_cast<Code>(s.code_of(values[i]));
    }
  };
  switch (s.begin.rounds) {
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
