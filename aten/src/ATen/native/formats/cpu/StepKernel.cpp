// Blocks of dot products rounded at every step: tiles of registers run over packed operands.
#include <ATen/native/formats/cpu/StepKernel.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>

namespace at::formats::CPU_CAPABILITY {

void fill_step(StepKernels& kernels);

namespace {

using c10::formats::bits_as;
using c10::formats::Machine;
using c10::formats::MagicNumbers;

// All functions with such arguments are inlined, so that their ABI does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kVectorBytes = 64;
#elif defined(CPU_CAPABILITY_AVX2)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t FloatBits __attribute__((vector_size(kVectorBytes)));
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef int64_t DoubleBits __attribute__((vector_size(kVectorBytes)));

inline constexpr int kTileRows = 4, kTileVectors = 2;
inline constexpr int kRowVectors = 8; // of a tile of one row
inline constexpr int64_t kTerms = 256; // packed at once
inline constexpr int64_t kFewRows = 2 * kTileRows; // for which it does not pay to pack b

template <typename T>
struct Vectors {
  static constexpr bool is_float = std::is_same_v<T, float>;
  using V = std::conditional_t<is_float, Floats, Doubles>;
  using Bits = std::conditional_t<is_float, FloatBits, DoubleBits>;
  static constexpr int64_t width = kVectorBytes / sizeof(T);
};

template <typename V, typename T>
TD_INLINE V load(const T* x) {
  V v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}

// Rounds numbers, or vectors of them, times 2^scale. Results are NaN where they are undecided.
template <typename T>
struct MagicRounder {
  T factor, least;

  explicit MagicRounder(const MagicNumbers<T>& m) : factor(m.factor), least(m.least) {}

  // The magic number of a multiple of the smallest number.
  template <typename V>
  TD_INLINE V magic(V x) const {
    using Bits = std::conditional_t<sizeof(V) == sizeof(T), typename Machine<T>::Signed,
                                    typename Vectors<T>::Bits>;
    const auto exponent =
        static_cast<typename Machine<T>::Signed>(c10::formats::infinity_bits<T>());
    return bits_as<V>(bits_as<Bits>(x) & exponent) * factor;
  }
  template <typename V>
  TD_INLINE V multiple(V x) const {
    const V m = magic(x);
    return (x + m) - m;
  }
  template <typename V>
  TD_INLINE V any(V x) const {
    const V own = magic(x), lowest = V{} + least, m = own > lowest ? own : lowest;
    return (x + m) - m;
  }
};

// The terms of a tile.
template <typename T>
struct Terms {
  int64_t count;
  const T* a[kTileRows]; // [count] for each row, times the products' scale
  const T* b; // [count, stride], of which the tile's columns
  int64_t stride;
  MagicRounder<T> product, sum;
  T from_product; // turns a product's scale into a sum's
};

template <StepSums kind>
inline constexpr bool in_machine = kind == StepSums::Machine || kind == StepSums::ExactMachine;

// sums: [rows, kStepColumns], of which the tile's columns.
template <typename T, StepSums kind, int rows, int vectors>
__attribute__((noinline)) void tile(const Terms<T>& terms, T* sums) {
  using V = typename Vectors<T>::V;
  constexpr int64_t width = Vectors<T>::width;
  const Terms<T> t = terms;
  V acc[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) acc[r][v] = load<V>(sums + r * kStepColumns + v * width);
  for (int64_t k = 0; k < t.count; ++k) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const V x = t.a[r][k] - V{}; // in all lanes
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        V term = x * load<V>(t.b + k * t.stride + v * width);
        if constexpr (kind != StepSums::ExactMachine) term = t.product.any(term);
        if constexpr (kind == StepSums::TwoFormats || kind == StepSums::Machine)
          term *= t.from_product;
        const V sum = acc[r][v] + term;
        acc[r][v] = in_machine<kind> ? sum : t.sum.multiple(sum);
      }
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      __builtin_memcpy(sums + r * kStepColumns + v * width, &acc[r][v], sizeof(V));
}

template <typename T>
struct alignas(64) Scratch {
  T a[kStepRows * kTerms]; // times the products' scale
  T b[kTerms * kRowVectors * Vectors<T>::width]; // one panel
  T chunks[kStepRows * kStepColumns];
};

template <typename T, StepSums kind>
class Block {
 public:
  Block(const StepDots<T>& d, const StepBlock& block, T* sums)
      : d_(d),
        b_(block),
        scale_(in_machine<kind> ? 0 : d.sum.scale),
        product_scale_(kind == StepSums::ExactMachine ? 0 : d.product.scale),
        sums_(sums),
        scratch_(new Scratch<T>) {}

  void run() {
    begin();
    for (int64_t first = 0; first < d_.k;) {
      int64_t end = std::min(first + kTerms, d_.k);
      if (d_.chunk) end = std::min(end, (first / d_.chunk + 1) * d_.chunk);
      add_terms(first, end - first);
      if (d_.chunk && (end == d_.k || end % d_.chunk == 0)) add_chunks();
      first = end;
    }
    for_sums([&](T& sum, int64_t i, int64_t) {
      sum = d_.chunk ? scratch_->chunks[i] : sum * power(-scale_);
    });
  }

 private:
  static T power(int exponent) { return c10::formats::power_of_two<T>(exponent); }

  // Calls each(sum, its index in the block, its index in memory).
  template <typename Each>
  void for_sums(Each each) {
    for (int64_t r = 0; r < b_.rows; ++r) {
      const int64_t i = r * kStepColumns, at = (b_.row + r) * d_.n + b_.column;
      for (int64_t c = 0; c < b_.columns; ++c) each(sums_[i + c], i + c, at + c);
    }
  }

  void begin() {
    std::fill_n(sums_, (b_.rows + kTileRows - 1) / kTileRows * kTileRows * kStepColumns, T{0});
    const MagicRounder<T> rounder(d_.sum);
    for_sums([&](T& sum, int64_t i, int64_t at) {
      const T start = d_.start ? d_.start[at] : 0;
      if (d_.chunk) {
        scratch_->chunks[i] = start;
      } else {
        sum = in_machine<kind> ? start : rounder.any(start * power(scale_));
        // No sum of other numbers is -0.
        if (sum == 0 && std::signbit(start)) sum = NAN;
      }
    });
  }

  void add_chunks() {
    for_sums([&](T& sum, int64_t i, int64_t) {
      const T total = scratch_->chunks[i] + sum * power(-scale_);
      scratch_->chunks[i] = d_.chunks_in_float ? static_cast<T>(static_cast<float>(total)) : total;
      sum = 0;
    });
  }

  void pack_left(int64_t first, int64_t terms) {
    for (int64_t r = 0; r < b_.rows; ++r) {
      const int64_t from = (b_.row + r) * d_.k + first;
      T* to = scratch_->a + r * kTerms;
      const T scale = power(product_scale_);
      for (int64_t k = 0; k < terms; ++k) to[k] = d_.a ? d_.a[from + k] * scale : scale;
      for (int64_t k = 0; d_.present_rows && k < terms; ++k)
        if (!d_.present_rows[from + k]) to[k] = 0;
    }
  }

  // Packs columns, with zeros for absent terms and behind the last column.
  void pack_right(int64_t from, int64_t terms, int64_t columns, int64_t width) {
    for (int64_t k = 0; k < terms; ++k, from += d_.n) {
      T* to = scratch_->b + k * width;
      std::copy_n(d_.b + from, columns, to);
      std::fill(to + columns, to + width, T{0});
      for (int64_t j = 0; d_.present && j < columns; ++j)
        if (!d_.present[from + j]) to[j] = 0;
    }
  }

  void add_terms(int64_t first, int64_t count) {
    pack_left(first, count);
    const bool wide = b_.rows == 1 && b_.columns > kTileVectors * Vectors<T>::width;
    const int64_t width = (wide ? kRowVectors : kTileVectors) * Vectors<T>::width;
    for (int64_t column = 0; column < b_.columns; column += width) {
      const int64_t from = first * d_.n + b_.column + column,
                    columns = std::min(width, b_.columns - column);
      const bool packed = columns < width || d_.present || b_.rows > kFewRows;
      if (packed) pack_right(from, count, columns, width);
      Terms<T> terms{count,
                     {},
                     packed ? scratch_->b : d_.b + from,
                     packed ? width : d_.n,
                     MagicRounder<T>(d_.product),
                     MagicRounder<T>(d_.sum),
                     power(scale_ - product_scale_)};
      for (int64_t row = 0; row < b_.rows; row += kTileRows) {
        // Rows behind the last one repeat it.
        for (int64_t r = 0; r < kTileRows; ++r)
          terms.a[r] = scratch_->a + std::min(row + r, b_.rows - 1) * kTerms;
        T* sums = sums_ + row * kStepColumns + column;
        if (wide) tile<T, kind, 1, kRowVectors>(terms, sums);
        else if (row + 1 == b_.rows) tile<T, kind, 1, kTileVectors>(terms, sums);
        else tile<T, kind, kTileRows, kTileVectors>(terms, sums);
      }
    }
  }

  const StepDots<T>& d_;
  const StepBlock b_;
  const int scale_, product_scale_; // exponents: of sums and of products
  T* sums_;
  const std::unique_ptr<Scratch<T>> scratch_;
};

template <typename T>
void compute_block(const StepDots<T>& d, const StepBlock& block, T* sums) {
  switch (d.sums) {
    case StepSums::OneFormat: return Block<T, StepSums::OneFormat>(d, block, sums).run();
    case StepSums::TwoFormats: return Block<T, StepSums::TwoFormats>(d, block, sums).run();
    case StepSums::Machine: return Block<T, StepSums::Machine>(d, block, sums).run();
    case StepSums::ExactMachine: return Block<T, StepSums::ExactMachine>(d, block, sums).run();
  }
}

} // namespace

void fill_step(StepKernels& kernels) {
  kernels.block_float = &compute_block<float>;
  kernels.block_double = &compute_block<double>;
}

} // namespace at::formats::CPU_CAPABILITY
