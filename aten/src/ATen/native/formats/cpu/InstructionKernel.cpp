// Blocks of dot products with random rounding: operands are packed, and tiles of registers run over
// them.
#include <ATen/native/formats/cpu/InstructionKernel.h>

#include <ATen/native/formats/cpu/InstructionTiles.h>
#include <c10/formats/codec/Philox.h>

#include <algorithm>
#include <memory>

namespace at::formats::CPU_CAPABILITY {

void fill_instruction(InstructionKernels& kernels);

namespace {

inline constexpr int64_t kTerms = 256; // packed at once; a multiple of kWindow
static_assert(kTerms % kWindow == 0 && kInstructionColumns % (2 * kWide) == 0);

// The exponent fields of some float32 numbers: the largest, and the smallest of those that are not
// zero.
struct Exponents {
  uint32_t low, high;
};

// Magnitudes of numbers seen so far: the largest, and the smallest that is not zero, less one.
struct Magnitudes {
  uint32_t low{UINT32_MAX}, high{0};

  TD_INLINE void add(uint32_t bits) {
    const uint32_t magnitude = bits & INT32_MAX;
    high = std::max(high, magnitude);
    low = std::min(low, magnitude - 1);
  }
  Exponents exponents() const { return {low == UINT32_MAX ? 0xFF : (low + 1) >> 23, high >> 23}; }
};

// Whether no sum of products leaves float32's normal range, if the sums so far did not. Sums that
// are multiples of 2^-149 need no rounding below 2^-126. Products below 2^90 add up to less than
// 2^127, as there are less than 2^30.
bool stays_normal(Exponents a, Exponents b) {
  constexpr int bias = 127, digits = 23;
  return a.high < 0xFF && b.high < 0xFF && a.high + b.high < 2 * bias + 89 && a.low > 0 &&
      b.low > 0 && a.low + b.low >= 2 * bias + 2 * digits - 149;
}

template <typename S>
struct alignas(64) Scratch {
  using T = typename S::T;
  using Word = typename S::Word;
  static constexpr int64_t panels = kInstructionColumns / S::width,
                           tiles = kInstructionRows / kTileRows;
  T a[kInstructionRows * kTerms]; // [tiles, terms, kTileRows]
  T sums[kInstructionRows * kInstructionColumns]; // [panels, rows, width]
  alignas(64) T b[kTerms * S::width];
  alignas(64) Word words[kTerms * S::width], products[kTerms * S::width],
      present[kTerms * S::width];
  uint64_t rows[kInstructionRows], columns[kInstructionColumns];
  Exponents of_a[tiles];
  bool careful[panels][tiles]; // once a sum may have left the normal range, it stays so
};

template <typename S>
class Block {
 public:
  using T = typename S::T;
  using Word = typename S::Word;

  Block(const InstructionDots& d, int64_t row, int64_t column, int64_t columns)
      : d_(d),
        row_(row),
        column_(column),
        rows_(std::min(kInstructionRows, d.m - row)),
        columns_(std::min(columns, d.n - column)),
        panels_((columns_ + S::width - 1) / S::width),
        scratch_(new Scratch<S>) {}

  void run() {
    begin();
    for (int64_t first = 0; first < d_.k; first += kTerms) {
      const int64_t terms = std::min(kTerms, d_.k - first);
      pack_rows(first, terms);
      for (int64_t panel = 0; panel < panels_; ++panel) add_terms(first, terms, panel);
    }
    end();
  }

 private:
  // Calls each(number in memory, number in a panel) for the results.
  template <typename Each>
  void for_results(Each each) {
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = 0; j < columns_; ++j)
        each((row_ + i) * d_.n + column_ + j,
             scratch_->sums[(j / S::width * kInstructionRows + i) * S::width + j % S::width]);
  }

  void begin() {
    for (int64_t i = 0; i < rows_; ++i)
      scratch_->rows[i] = c10::formats::random_word(d_.seed, 2 * (row_ + i) + 1);
    for (int64_t j = 0; j < panels_ * S::width; ++j)
      scratch_->columns[j] = c10::formats::random_word(d_.seed, 2 * (column_ + j));
    std::fill_n(scratch_->sums, panels_ * kInstructionRows * S::width, T{0});
    Magnitudes starts;
    if (d_.start) {
      for_results([&](int64_t at, T& sum) {
        sum = d_.start[at];
        starts.add(as<uint32_t>(d_.start[at]));
      });
    }
    const bool large = starts.exponents().high >= 127 + 120;
    for (auto& of_panel : scratch_->careful)
      std::fill(std::begin(of_panel), std::end(of_panel), large);
  }

  void end() {
    for_results([&](int64_t at, T sum) { d_.out[at] = static_cast<float>(sum); });
  }

  void pack_rows(int64_t first, int64_t terms) {
    for (int64_t tile = 0; tile * kTileRows < rows_; ++tile) {
      Magnitudes seen;
      for (int64_t r = 0; r < kTileRows; ++r) {
        const int64_t i = tile * kTileRows + r;
        T* to = scratch_->a + tile * kTerms * kTileRows + r;
        if (i >= rows_ || !d_.a) {
          const float x = i >= rows_ ? 0.0f : 1.0f;
          seen.add(as<uint32_t>(x));
          for (int64_t k = 0; k < terms; ++k) to[k * kTileRows] = x;
          continue;
        }
        const float* from = d_.a + (row_ + i) * d_.k + first;
        for (int64_t k = 0; k < terms; ++k) {
          seen.add(as<uint32_t>(from[k]));
          to[k * kTileRows] = from[k];
        }
      }
      scratch_->of_a[tile] = seen.exponents();
    }
  }

  // Packs a panel's terms and words; absent terms are masked.
  Exponents pack_panel(int64_t first, int64_t terms, int64_t panel) {
    const int64_t begin = panel * S::width, width = std::min<int64_t>(S::width, columns_ - begin);
    Magnitudes seen[S::width];
    float row[S::width] = {};
    for (int64_t k = 0; k < terms; ++k) {
      const int64_t from = (first + k) * d_.n + column_ + begin;
      if (width == S::width) __builtin_memcpy(row, d_.b + from, sizeof row);
      else std::copy_n(d_.b + from, width, row);
      for (int64_t j = 0; j < S::width; ++j) {
        seen[j].add(as<uint32_t>(row[j]));
        scratch_->b[k * S::width + j] = row[j];
      }
      for (int64_t j = 0; d_.present && j < S::width; ++j)
        scratch_->present[k * S::width + j] = j < width && d_.present[from + j] ? ~Word{0} : 0;
    }
    if constexpr (std::is_same_v<S, Cut>) {
      column_words(scratch_->columns + begin, first, terms, [&](int64_t k, Words word) {
        store(scratch_->words + k * S::width, word & kCutMask);
        if (d_.apart) store(scratch_->products + k * S::width, word >> (64 - kCut));
      });
    }
    for (const Magnitudes& of_column : seen) {
      seen[0].low = std::min(seen[0].low, of_column.low);
      seen[0].high = std::max(seen[0].high, of_column.high);
    }
    return seen[0].exponents();
  }

  void add_terms(int64_t first, int64_t terms, int64_t panel) {
    const Exponents of_b = pack_panel(first, terms, panel);
    const InstructionPanel<T, Word> p{terms,
                                      static_cast<uint64_t>(first),
                                      scratch_->b,
                                      scratch_->words,
                                      scratch_->products,
                                      scratch_->present,
                                      scratch_->columns + panel * S::width};
    for (int64_t i = 0; i < rows_; i += kTileRows) {
      const int64_t tile = i / kTileRows;
      bool& careful = scratch_->careful[panel][tile];
      careful = careful || !stays_normal(scratch_->of_a[tile], of_b);
      // Absent terms are 0, so that they change no stochastic sum if their factors are finite.
      const bool masked =
          d_.present && (!std::is_same_v<S, Cut> || scratch_->of_a[tile].high == 0xFF);
      const int64_t rows = std::min<int64_t>(kTileRows, rows_ - i);
      // Rows of zeros cost less than single ones.
      if (rows > 2) {
        add<kTileRows>(p, careful, masked, i);
      } else {
        for (int64_t r = 0; r < rows; ++r) add<1>(p, careful, masked, i + r);
      }
    }
  }

  template <int rows>
  void add(const InstructionPanel<T, Word>& p, bool careful, bool masked, int64_t i) {
    const T* a = scratch_->a + i / kTileRows * kTerms * kTileRows + i % kTileRows;
    T* sums = scratch_->sums +
        ((p.columns - scratch_->columns) / S::width * kInstructionRows + i) * S::width;
    const auto call = [&](auto apart) {
      const uint64_t* keys = scratch_->rows + i;
      if (masked) return S::template tile<rows, apart.value, true, true>(p, a, keys, sums);
      if (careful) return S::template tile<rows, apart.value, true, false>(p, a, keys, sums);
      S::template tile<rows, apart.value, false, false>(p, a, keys, sums);
    };
    d_.apart ? call(std::true_type()) : call(std::false_type());
  }

  const InstructionDots& d_;
  const int64_t row_, column_, rows_, columns_, panels_;
  const std::unique_ptr<Scratch<S>> scratch_;
};

void block(const InstructionDots& d, int64_t row, int64_t column, int64_t columns) {
  d.moves ? Block<Move>(d, row, column, columns).run() : Block<Cut>(d, row, column, columns).run();
}

} // namespace

void fill_instruction(InstructionKernels& kernels) {
  kernels.block = &block;
}

} // namespace at::formats::CPU_CAPABILITY
