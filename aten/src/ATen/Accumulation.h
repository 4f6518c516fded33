// What adds up the products of a dot product: a thread's policy, or a dtype's own.
#pragma once
#include <c10/formats/FormatRegistry.h>
#include <c10/formats/sums/BlockSum.h>
#include <c10/formats/sums/SumOrder.h>

#include <cstdint>
#include <optional>

namespace at::formats {

using c10::formats::BlockSum;
using c10::formats::Format;
using c10::formats::FormatEntry;
using c10::formats::Rounding;

struct Accumulation {
  enum class Kind : uint8_t {
    Machine, // float32 where every value of the format is one, else float64
    Float32,
    Float64,
    Exact, // no rounding before the last: the quire
    Steps, // every product and every sum rounded to a format
    // Steps for `chunk` products, and those sums added in the machine's type, or in `outer`.
    Chunked,
    Block, // BlockSum, in a register of the accumulator's format (nullptr: float32)
  };
  using Order = c10::formats::SumOrder;
  Kind kind{Kind::Machine};
  int64_t chunk{0};
  // Steps: the format of products and of sums; nullptr: the operands' own.
  const FormatEntry* product{nullptr};
  const FormatEntry* accumulator{nullptr};
  std::optional<Rounding> rounding; // Steps: of each step; else the formats' own
  bool fused{false}; // Steps: one rounding for multiply and add
  bool kahan{false}; // Steps: with Kahan's compensation
  bool exact_product{false}; // Steps: products are not rounded
  Order order{Order::Sequential}; // Steps
  int64_t lanes{1}; // Order::Lanes
  // Chunked: what the chunks' sums are rounded to; nullptr: the machine's type.
  const FormatEntry* outer{nullptr};
  // Block: a row of block_presets(), which says the numbers by the operands' format; else they are
  // `block`.
  int preset{-1};
  BlockSum block;

  // Whether stock kernels cannot do it.
  bool own_kernels() const {
    return kind == Kind::Exact || kind == Kind::Steps || kind == Kind::Chunked ||
        kind == Kind::Block;
  }
};

// The policy that overrides every dtype's own on this thread, if there is one; returns what was set
// before.
std::optional<Accumulation> accumulation_override();
std::optional<Accumulation> set_accumulation_override(const std::optional<Accumulation>& policy);
// A dtype's own policy, for all threads, from now on.
void set_accumulation_default(const FormatEntry& entry, const Accumulation& policy);
// What holds for a dtype on this thread now.
Accumulation accumulation_of(const FormatEntry& entry);

} // namespace at::formats
