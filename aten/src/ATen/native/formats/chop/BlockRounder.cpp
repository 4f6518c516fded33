#include <ATen/native/formats/chop/BlockRounder.h>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

namespace at::formats {
namespace {

using Kind = ScaleRule::Kind;

constexpr int64_t kTileNumbers = 2048; // numbers of a tile, unless a row of blocks has more
constexpr int64_t kNarrowest = 256; // columns of a tile
constexpr int64_t kGroup = 4, kPair = 8, kGroupsOfBlock = 16; // of HiF4
constexpr int64_t kNumbersOfThread = 32768; // numbers that are worth a thread

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Keeps nonzero numbers nonzero, and finite ones finite, for modes that tell a tiny magnitude from
// 0 and a huge one from infinity.
void keep_apart(const float* x, const float* inverse, float* y, int64_t n) {
  using Limits = std::numeric_limits<float>;
  for (int64_t i = 0; i < n; ++i) {
    if (y[i] == 0 && x[i] != 0) y[i] = std::copysign(Limits::min(), x[i]);
    if (std::isinf(y[i]) && std::isfinite(x[i]) && std::isfinite(inverse[i]))
      y[i] = std::copysign(Limits::max(), x[i]);
  }
}

} // namespace

BlockPlane BlockPlane::make(c10::IntArrayRef sizes, c10::IntArrayRef block, c10::IntArrayRef axis,
                            int64_t multiple) {
  const auto dims = static_cast<int64_t>(sizes.size());
  const auto along = [&](size_t i) { return axis[i] < 0 ? axis[i] + dims : axis[i]; };
  const bool one = axis.size() == 1 && 0 <= along(0) && along(0) < dims;
  const bool two = axis.size() == 2 && dims >= 2 && along(0) == dims - 2 && along(1) == dims - 1;
  TORCH_CHECK_VALUE((one || two) && block.size() == axis.size(),
                    "expected blocks along one dimension or along the last two to chop_blocks, but "
                    "got sizes ",
                    block, " along ", axis, " of a tensor of sizes ", sizes);
  TORCH_CHECK_VALUE(std::all_of(block.begin(), block.end(),
                                [](int64_t n) { return 1 <= n && n <= kLargestBlock; }),
                    "expected blocks of 1 to ", kLargestBlock, " to chop_blocks, but got ", block);
  const auto count = [&](int64_t from, int64_t to) {
    int64_t product = 1;
    for (int64_t d = from; d < to; ++d) product *= sizes[d];
    return product;
  };
  const int64_t a = along(0), length = sizes[a], inner = count(a + 1, dims);
  const auto within = [](int64_t n, int64_t most) {
    return std::max<int64_t>(1, std::min(n, most));
  };
  const int64_t size = within(block[0], length);
  BlockPlane p{count(0, a), length, inner, size, two ? within(block[1], inner) : 1};
  if (one && inner == 1) p = {1, p.batches, length, 1, size};
  if (p.rows % p.block_rows == 0) {
    p.rows *= p.batches;
    p.batches = 1;
  }
  if (p.block_rows == 1 && p.columns % p.block_columns == 0 && p.columns % multiple == 0) {
    p.columns *= p.rows;
    p.rows = 1;
  }
  return p;
}

// Whole blocks of one matrix. The rows and columns are those of its first number.
struct BlockRounder::Tile {
  int64_t batch, row, column;
  int64_t rows, columns;
};

namespace {

// The sizes of tiles, but for the last ones.
struct Tiling {
  int64_t rows, columns;

  explicit Tiling(const BlockPlane& p) {
    // Buffers hold the columns of a tile, and the numbers of one with blocks of one row.
    static_assert(kTileNumbers >= kLargestBlock + kNarrowest);
    const int64_t wide = std::max(kTileNumbers / p.block_rows, kNarrowest);
    columns = std::min(p.columns, std::max<int64_t>(1, wide / p.block_columns) * p.block_columns);
    rows = columns < p.columns
        ? p.block_rows
        : std::max<int64_t>(1, kTileNumbers / (columns * p.block_rows)) * p.block_rows;
  }
};

} // namespace

BlockRounder::Tile BlockRounder::tile_of(int64_t index) const {
  const Tiling size(plane);
  const int64_t across = ceil_div(plane.columns, size.columns),
                down = ceil_div(plane.rows, size.rows);
  const int64_t row = index / across % down * size.rows, column = index % across * size.columns;
  return {index / across / down, row, column, std::min(size.rows, plane.rows - row),
          std::min(size.columns, plane.columns - column)};
}

int64_t BlockRounder::number_of(const Tile& t) const {
  return (t.batch * plane.rows + t.row) * plane.columns + t.column;
}

void BlockRounder::each_stretch(const std::function<void(int64_t, int64_t)>& body) const {
  const Tiling size(plane);
  const int64_t tiles =
      plane.batches * ceil_div(plane.rows, size.rows) * ceil_div(plane.columns, size.columns);
  at::parallel_for(0, tiles, std::max<int64_t>(1, kNumbersOfThread / (size.rows * size.columns)),
                   body);
}

void BlockRounder::operator()(const float* values, float* results) const {
  run(values, [&](const Body& body) {
    each_stretch([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(tile_of(i), {results, nullptr});
    });
  });
}

BlockCounts BlockRounder::count(const float* values) const {
  BlockCounts all;
  std::mutex mutex;
  run(values, [&](const Body& body) {
    each_stretch([&](int64_t begin, int64_t end) {
      BlockTally tally(scaled, format, kTileNumbers);
      for (int64_t i = begin; i < end; ++i) body(tile_of(i), {nullptr, &tally});
      const std::lock_guard<std::mutex> lock(mutex);
      all.add(tally.finish());
    });
  });
  return all;
}

void BlockRounder::run(const float* values, const std::function<void(const Body&)>& each) const {
  // The blocks of a tile follow each other among all blocks.
  const auto block_of = [&](const Tile& t) {
    return (t.batch * plane.rows_of_blocks() + t.row / plane.block_rows) * plane.blocks_of_row() +
        t.column / plane.block_columns;
  };
  if (rule.kind == Kind::Groups) {
    each([&](const Tile& t, const Sink& sink) {
      return plane.block_rows == 1 && plane.block_columns > 1
          ? round_groups_of_row(t, values, sink)
          : round_groups_of_columns(t, values, sink);
    });
  } else if (rule.above || rule.brought_to == 0) {
    const TensorScale above =
        rule.above ? TensorScale{1 / *rule.above, *rule.above} : TensorScale{};
    each([&](const Tile& t, const Sink& sink) {
      int32_t most[kTileNumbers];
      find(t, values, most);
      round_blocks(t, most, above, values, sink);
    });
  } else {
    std::vector<int32_t> most(plane.batches * plane.rows_of_blocks() * plane.blocks_of_row());
    each_stretch([&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Tile t = tile_of(i);
        find(t, values, most.data() + block_of(t));
      }
    });
    const TensorScale above = find_tensor_scale(most.data(), static_cast<int64_t>(most.size()));
    each([&](const Tile& t, const Sink& sink) {
      round_blocks(t, most.data() + block_of(t), above, values, sink);
    });
  }
}

// Blocks with infinities or NaN do not count.
BlockRounder::TensorScale BlockRounder::find_tensor_scale(const int32_t* most, int64_t n) const {
  constexpr float kLeast = 0x1p-117F; // of a tensor's scale, as in targets/block_scales.py
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, most[i] < kInfiniteMagnitude ? most[i] : 0);
  const float encode =
      std::min(rule.brought_to / c10::formats::bits_as<float>(largest), 1 / kLeast);
  return {encode, 1 / encode};
}

// Finds the largest magnitudes of a tile's blocks.
void BlockRounder::find(const Tile& t, const float* values, int32_t* most) const {
  const float* x = values + number_of(t);
  const int64_t runs = ceil_div(t.columns, plane.block_columns);
  for (int64_t r = 0; r < t.rows; r += plane.block_rows, most += runs) {
    const float* from = x + r * plane.columns;
    const int64_t rows = std::min(plane.block_rows, t.rows - r);
    if (rows == 1) {
      scaled.find_in_runs(from, t.columns, plane.block_columns, most);
    } else if (plane.block_columns == 1) {
      scaled.find_in_columns(from, rows, plane.columns, t.columns, most);
    } else {
      int32_t columns[kTileNumbers];
      scaled.find_in_columns(from, rows, plane.columns, t.columns, columns);
      scaled.find_among(columns, t.columns, plane.block_columns, most);
    }
  }
}

void BlockRounder::find_scales(const int32_t* most, const TensorScale& above, float* inverse,
                               float* factor, int64_t n, BlockTally* tally) const {
  if (rule.kind == Kind::Powers) {
    scaled.by_powers(rule.powers, most, inverse, factor, n);
    if (tally) tally->count_scales(most, factor, n);
    return;
  }
  float quotients[kTileNumbers], own[kTileNumbers];
  scaled.divide(most, rule.full, above.encode, quotients, n);
  round_numbers(rule.format, quotients, own, 0, n);
  if (seen_scales) seen_scales.values(quotients, own, n);
  for (int64_t i = 0; i < n; ++i) own[i] = own[i] < rule.smallest ? rule.smallest : own[i];
  scaled.by_numbers(most, own, above.above, inverse, factor, n);
  if (tally) tally->count_scales(most, own, n);
}

void BlockRounder::round_blocks(const Tile& t, const int32_t* most, const TensorScale& above,
                                const float* values, const Sink& sink) const {
  float inverse[kTileNumbers], factor[kTileNumbers];
  const int64_t blocks =
      ceil_div(t.rows, plane.block_rows) * ceil_div(t.columns, plane.block_columns);
  find_scales(most, above, inverse, factor, blocks, sink.tally);
  round(t, {t.rows, t.columns, plane.columns, plane.block_rows, plane.block_columns}, inverse,
        factor, values, sink);
}

// HiF4 with blocks along rows. Rows of groups are filled up with zeros to whole pairs.
void BlockRounder::round_groups_of_row(const Tile& t, const float* values, const Sink& sink) const {
  constexpr int64_t kGroups = kTileNumbers / kGroup + kGroupsOfBlock;
  int32_t groups[kGroups], most[kGroups];
  float reciprocal[kGroups], own[kGroups], pair_reciprocal[kGroups], pair_own[kGroups];
  float inverse[kGroups], factor[kGroups];
  for (int64_t r = 0; r < t.rows; ++r) {
    const Tile row{t.batch, t.row + r, t.column, 1, t.columns};
    const int64_t count = ceil_div(t.columns, kGroup), pairs = ceil_div(count, 2),
                  blocks = ceil_div(count, kGroupsOfBlock);
    scaled.find_in_runs(values + number_of(row), t.columns, kGroup, groups);
    groups[count] = 0;
    scaled.find_among(groups, count, kGroupsOfBlock, most);
    scaled.by_sevenths(most, reciprocal, own, blocks);
    if (sink.tally) sink.tally->count_scales(most, own, blocks);
    scaled.spread(reciprocal, kGroupsOfBlock / 2, pair_reciprocal, pairs);
    scaled.spread(own, kGroupsOfBlock / 2, pair_own, pairs);
    scaled.by_groups(groups, 1, pair_reciprocal, pair_own, inverse, factor, pairs);
    round(row, {1, t.columns, plane.columns, 1, kGroup}, inverse, factor, values, sink);
  }
}

// HiF4 with blocks along columns.
void BlockRounder::round_groups_of_columns(const Tile& t, const float* values,
                                           const Sink& sink) const {
  constexpr int64_t kGroups =
      2 * kTileNumbers; // two rows of groups, or a quarter of the tile's rows
  int32_t groups[kGroups], most[kTileNumbers];
  float reciprocal[kTileNumbers], own[kTileNumbers], inverse[kGroups], factor[kGroups];
  const int64_t n = t.columns;
  for (int64_t r = 0; r < t.rows; r += plane.block_rows) {
    const Tile part{t.batch, t.row + r, t.column, std::min(plane.block_rows, t.rows - r), n};
    const int64_t count = ceil_div(part.rows, kGroup);
    std::fill_n(most, n, 0);
    for (int64_t g = 0; g < count; ++g) {
      const int64_t rows = std::min(kGroup, part.rows - g * kGroup);
      scaled.find_in_columns(values + number_of(part) + g * kGroup * plane.columns, rows,
                             plane.columns, n, groups + g * n);
      for (int64_t c = 0; c < n; ++c) most[c] = std::max(most[c], groups[g * n + c]);
    }
    if (count % 2) std::fill_n(groups + count * n, n, 0);
    scaled.by_sevenths(most, reciprocal, own, n);
    if (sink.tally) sink.tally->count_scales(most, own, n);
    for (int64_t g = 0; g < count * n; g += 2 * n)
      scaled.by_groups(groups + g, n, reciprocal, own, inverse + g, factor + g, n);
    round(part, {part.rows, n, plane.columns, kGroup, 1}, inverse, factor, values, sink);
  }
}

// Rounds a tile whose scales have this layout.
void BlockRounder::round(const Tile& t, const ScaledTile& layout, const float* inverse,
                         const float* factor, const float* values, const Sink& sink) const {
  const int64_t start = number_of(t);
  if (!seen && sink.results &&
      scaled.round(format, layout, values + start, inverse, factor, sink.results + start))
    return;
  const int64_t padded_rows = plane.rows_of_blocks() * plane.block_rows,
                padded_columns = plane.blocks_of_row() * plane.block_columns;
  const int64_t n = t.columns, runs = layout.runs();
  float down[kTileNumbers], up[kTileNumbers], quotients[kTileNumbers], elements[kTileNumbers],
      row[kTileNumbers];
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t from = start + r * plane.columns;
    if (r % layout.together == 0) {
      scaled.spread(inverse + r / layout.together * runs, layout.run, down, n);
      scaled.spread(factor + r / layout.together * runs, layout.run, up, n);
    }
    scaled.multiply(values + from, down, quotients, n);
    if (careful) keep_apart(values + from, down, quotients, n);
    const int64_t first = (t.batch * padded_rows + t.row + r) * padded_columns + t.column;
    round_numbers(format, quotients, elements, static_cast<uint64_t>(first), n);
    if (seen) seen.values(quotients, elements, n);
    float* results = sink.results ? sink.results + from : row;
    scaled.multiply(elements, up, results, n);
    if (!sink.tally) continue;
    sink.tally->count_row(values + from, results, quotients, n);
    if ((r + 1) % plane.block_rows == 0 || r + 1 == t.rows)
      sink.tally->end_blocks(n, plane.block_columns);
  }
}

void BlockRounder::round_numbers(const Format& f, const float* values, float* results,
                                 uint64_t first, int64_t n) const {
  if (kernels.round(f, values, results, n)) return;
  alignas(64) char codes[kTileNumbers * 4];
  kernels.encode(f, values, codes, n, {words.seed, first});
  kernels.decode(f, codes, results, n);
}

} // namespace at::formats
