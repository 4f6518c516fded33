// Sums of blocks of products on the CPU: chips with known adders, a policy's numbers for operands,
// and registers that may be observed.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/Observation.h>
#include <c10/formats/sums/BlockRegister.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace at::formats {

using c10::formats::block_term;
using c10::formats::BlockAdder;
using c10::formats::BlockTerm;

// A chip's adder, with its numbers for each format of operands.
struct BlockPreset {
  struct Row {
    Format operands; // their exponent and fraction widths count
    BlockSum block;
    Format reg;
  };
  std::string name, source;
  std::vector<Row> rows;
};
const std::vector<BlockPreset>& block_presets();

// A policy's adder for operands of two formats. Raises if the policy has none for them.
BlockAdder block_adder(const FormatEntry& left, const FormatEntry& right,
                       const Accumulation& policy);

// Unpacked factors, n of each. Without left factors they are ones.
struct TermPairs {
  const BlockTerm *left, *right;

  BlockTerm x(int64_t i) const { return left ? left[i] : BlockTerm{int64_t{1} << 52, 0}; }
  BlockTerm y(int64_t i) const { return right[i]; }
};

// Counts sums if somebody observes them.
class SeenSums {
 public:
  SeenSums(const Recorder* recorder = nullptr)
      : recorder_(recorder && *recorder ? recorder : nullptr) {}

  void operator()(const c10::formats::Unpacked& exact, double rounded) const {
    if (!recorder_) return;
    const double before = c10::formats::to_odd_double(exact);
    recorder_->values(&before, &rounded, 1);
  }

 private:
  const Recorder* recorder_;
};

using BlockRegister = c10::formats::BlockRegister<SeenSums>;

} // namespace at::formats
