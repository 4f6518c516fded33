// How the products of a dot product are added up: by a thread's policy, or by a dtype's own.
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
    Machine, // float32 if it has every value of the format, else float64
    Float32,
    Float64,
    Exact, // no rounding before the last one: the quire
    Steps, // every product and every sum is rounded to a format
    // Steps within `chunk` products; the chunks' sums are added in the machine's type, or in
    // `outer`.
    Chunked,
    Block, // BlockSum, in a register of the accumulator's format (nullptr: float32)
  };
  using Order = c10::formats::SumOrder;
  Kind kind{Kind::Machine};
  int64_t chunk{0};
  // Steps: the formats of products and of sums; nullptr: the operands' own format.
  const FormatEntry* product{nullptr};
  const FormatEntry* accumulator{nullptr};
  std::optional<Rounding> rounding; // Steps: the mode of each step; unset: the formats' own
  bool fused{false}; // Steps: multiply and add are rounded once, together
  bool kahan{false}; // Steps: with Kahan's compensation
  bool exact_product{false}; // Steps: products are not rounded
  Order order{Order::Sequential}; // Steps
  // Steps: only what an instruction computes is rounded, neither the start nor the result anew.
  bool instructions{false};
  int64_t lanes{1}; // Order::Lanes
  // Chunked: the format of the chunks' sums; nullptr: the machine's type.
  const FormatEntry* outer{nullptr};
  // Block: a row of block_presets(), which holds numbers for each format of the operands. With -1
  // the numbers are in `block`. Chunked: from 0 on, that chip adds up the chunks' terms.
  int preset{-1};
  BlockSum block;

  // Whether the policy needs this package's kernels: stock kernels cannot carry it out.
  bool own_kernels() const {
    return kind == Kind::Exact || kind == Kind::Steps || kind == Kind::Chunked ||
        kind == Kind::Block;
  }
  bool chunks_of_chip() const { return kind == Kind::Chunked && preset >= 0; }
};

// The policy that overrides every dtype's own on this thread, if any. The setter returns the
// previous one.
std::optional<Accumulation> accumulation_override();
std::optional<Accumulation> set_accumulation_override(const std::optional<Accumulation>& policy);
// Sets a dtype's own policy, for all threads, from now on.
void set_accumulation_default(const FormatEntry& entry, const Accumulation& policy);
// The policy that holds for a dtype on this thread now.
Accumulation accumulation_of(const FormatEntry& entry);

} // namespace at::formats
