// Rounds float32 numbers in blocks that share a scale. Each tile's largest magnitudes, scales and
// results are made while the tile is in the processor's cache.
#pragma once
#include <ATen/Observation.h>
#include <ATen/native/formats/chop/BlockTally.h>
#include <ATen/native/formats/cpu/ScaledKernel.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <optional>

namespace at::formats {

inline constexpr int64_t kLargestBlock = 1024; // numbers along one dimension

// A contiguous tensor as matrices, and its blocks as rectangles in them. Blocks at the ends may be
// smaller.
struct BlockPlane {
  int64_t batches, rows, columns;
  int64_t block_rows, block_columns;

  // Blocks of block[i] numbers along dimension axis[i], which is one dimension or the last two.
  // Rows are joined if they end with whole blocks, and have a multiple of `multiple` numbers.
  static BlockPlane make(c10::IntArrayRef sizes, c10::IntArrayRef block, c10::IntArrayRef axis,
                         int64_t multiple);

  int64_t rows_of_blocks() const { return (rows + block_rows - 1) / block_rows; }
  int64_t blocks_of_row() const { return (columns + block_columns - 1) / block_columns; }
};

// How a block's scale follows from its largest magnitude. Powers: as BlockScale.h says. Numbers:
// that magnitude divided by `full`, rounded to `format`, at least `smallest`, times the scale of
// the tensor. Groups: HiF4's, with exponents for each four numbers (targets/micro_exponents.py).
struct ScaleRule {
  enum class Kind { Powers, Numbers, Groups };
  Kind kind{Kind::Powers};
  c10::formats::BlockScale powers{};
  Format format{};
  float full{1}, smallest{1};
  // The scale of the tensor, if it is given; else the magnitude to which it brings the largest
  // number of the tensor, or 0 without such a scale.
  std::optional<float> above{};
  float brought_to{0};
};

struct BlockRounder {
  const CpuKernels& kernels;
  const ScaledKernels& scaled;
  Format format;
  ScaleRule rule;
  BlockPlane plane;
  bool careful; // nonzero numbers have nonzero quotients, finite ones have finite quotients
  RandomWords words{}; // indexed as if all blocks were whole
  Recorder seen{}, seen_scales{};

  // Rounds all numbers, on PyTorch's threads.
  void operator()(const float* values, float* results) const;
  // Counts what rounding would do.
  BlockCounts count(const float* values) const;

 private:
  struct Tile;
  // Takes the results of a tile, or counts in their place.
  struct Sink {
    float* results;
    BlockTally* tally;
  };
  struct TensorScale {
    float encode{1}, above{1};
  };

  Tile tile_of(int64_t index) const;
  int64_t number_of(const Tile& t) const;
  TensorScale find_tensor_scale(const int32_t* most, int64_t n) const;
  // Calls body(begin, end) on threads, for stretches of all tiles.
  void each_stretch(const std::function<void(int64_t, int64_t)>& body) const;
  // Handles all tiles. each(body) calls body(tile, sink) for every tile.
  using Body = std::function<void(const Tile&, const Sink&)>;
  void run(const float* values, const std::function<void(const Body&)>& each) const;
  void find(const Tile& t, const float* values, int32_t* most) const;
  void find_scales(const int32_t* most, const TensorScale& above, float* inverse, float* factor,
                   int64_t n, BlockTally* tally) const;
  void round_blocks(const Tile& t, const int32_t* most, const TensorScale& above,
                    const float* values, const Sink& sink) const;
  void round_groups_of_row(const Tile& t, const float* values, const Sink& sink) const;
  void round_groups_of_columns(const Tile& t, const float* values, const Sink& sink) const;
  void round(const Tile& t, const ScaledTile& layout, const float* inverse, const float* factor,
             const float* values, const Sink& sink) const;
  void round_numbers(const Format& f, const float* values, float* results, uint64_t first,
                     int64_t n) const;
};

} // namespace at::formats
