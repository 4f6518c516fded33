// Chips whose adders are known bit for bit, and a policy's numbers for a format. Each preset names
// the source of its numbers.
#include <ATen/native/formats/sums/BlockSums.h>

#include <c10/util/Exception.h>

#include <bit>
#include <limits>
#include <utility>

namespace at::formats {
namespace {

using c10::formats::float_format;
using c10::formats::Kind;
using c10::formats::Specials;

constexpr int kExponentsOfHardware = 1 << 16; // sets no limit on a posit's exponents

BlockPreset::Row nvidia(const Format& operands, int terms, int extra_bits,
                        std::optional<int> min_exponent, int man_bits = 23) {
  Format reg = float_format(8, man_bits);
  reg.rounding = Rounding::TowardZero;
  BlockSum sum;
  sum.terms = terms;
  sum.extra_bits = extra_bits;
  sum.min_exponent = min_exponent;
  return {operands, sum, reg};
}

// Products are aligned among themselves, and then with the register. For float8, products at even
// and at odd places are aligned apart.
BlockPreset::Row cdna3(const Format& operands, int terms, int interleave) {
  BlockSum sum;
  sum.terms = terms;
  sum.extra_bits = 1;
  sum.interleave = interleave;
  sum.late = 8;
  sum.min_exponent = -126;
  sum.product_limit = true;
  return {operands, sum, float_format(8, 23)};
}

// NVIDIA's Blackwell: 8, 6 and 4 bits have one adder.
std::vector<BlockPreset::Row> blackwell() {
  std::vector<BlockPreset::Row> rows{nvidia(float_format(5, 10), 16, 2, -133),
                                     nvidia(float_format(8, 7), 16, 2, -133),
                                     nvidia(float_format(8, 10), 8, 2, -133)};
  for (const auto& [exp_bits, man_bits] : {std::pair(4, 3), {5, 2}, {3, 2}, {2, 3}, {2, 1}})
    rows.push_back(nvidia(float_format(exp_bits, man_bits), 32, 2, -133));
  return rows;
}

std::vector<BlockPreset> make_presets() {
  const Format half = float_format(5, 10), bfloat = float_format(8, 7), tf32 = float_format(8, 10),
               e4m3 = float_format(4, 3), e5m2 = float_format(5, 2);
  const std::string nvidia_source =
      "Khattak and Mikaitis, Accurate models of NVIDIA tensor cores, ACM TACO (2026)";
  const std::string mma_sim =
      "Xie et al., MMA-Sim: Bit-accurate reference model of tensor cores and matrix cores, arXiv "
      "2511.10909";
  const std::optional<int> none;
  return {
      {"nvidia-v100", nvidia_source, {nvidia(half, 4, 0, none)}},
      {"nvidia-a100",
       nvidia_source,
       {nvidia(half, 8, 1, -132), nvidia(bfloat, 8, 1, -132), nvidia(tf32, 4, 1, -132)}},
      // float8: a register with 13 bits behind the point, and no extra bits.
      {"nvidia-h100",
       nvidia_source,
       {nvidia(half, 16, 2, -133), nvidia(bfloat, 16, 2, -133), nvidia(tf32, 8, 2, -133),
        nvidia(e4m3, 32, 0, -133, 13), nvidia(e5m2, 32, 0, -133, 13)}},
      {"nvidia-b200", nvidia_source + "; " + mma_sim, blackwell()},
      {"nvidia-rtx-blackwell", mma_sim, blackwell()},
      {"amd-mi300x",
       mma_sim,
       {cdna3(half, 8, 1), cdna3(bfloat, 8, 1), cdna3(tf32, 4, 1), cdna3(e4m3, 16, 2),
        cdna3(e5m2, 16, 2)}},
  };
}

int low_exponent(const FormatEntry& entry) {
  return entry.format.kind == Kind::Float ? entry.format.min_exponent() : -kExponentsOfHardware;
}

BlockAdder adder_of(const FormatEntry& left, const FormatEntry& right, const BlockSum& sum,
                    const Format& reg) {
  return {sum, reg, low_exponent(left), low_exponent(right), reg.man_bits + sum.extra_bits};
}

// The row for a format. Special codes do not matter: e4m3's largest number may be 448 or 240.
const BlockPreset::Row* row_for(const BlockPreset& preset, const Format& f) {
  for (const BlockPreset::Row& row : preset.rows) {
    if (f.kind == Kind::Float && f.exp_bits == row.operands.exp_bits &&
        f.man_bits == row.operands.man_bits)
      return &row;
  }
  return nullptr;
}

// One instruction takes any two formats of at most 8 bits (kind::f8f6f4).
bool same_adder(const BlockPreset::Row& x, const BlockPreset::Row& y) {
  const auto place = [](const BlockPreset::Row& row) {
    return std::max<int>(row.operands.bits, 8);
  };
  return x.reg == y.reg && x.block.terms == y.block.terms &&
      x.block.extra_bits == y.block.extra_bits && place(x) == place(y);
}

} // namespace

const std::vector<BlockPreset>& block_presets() {
  static const std::vector<BlockPreset> presets = make_presets();
  return presets;
}

BlockAdder block_adder(const FormatEntry& left, const FormatEntry& right,
                       const Accumulation& policy) {
  if (policy.preset >= 0) {
    const BlockPreset& preset = block_presets().at(policy.preset);
    const BlockPreset::Row *x = row_for(preset, left.format), *y = row_for(preset, right.format);
    if (x && y && same_adder(*x, *y)) return adder_of(left, right, x->block, x->reg);
    std::string known;
    for (const BlockPreset::Row& row : preset.rows) {
      known += c10::str(known.empty() ? "" : ", ", "e", int(row.operands.exp_bits), "m",
                        int(row.operands.man_bits));
    }
    TORCH_CHECK(false, "accumulate: expected operands of formats that ", preset.name,
                " multiplies (", known, "), but got ", left.name,
                &left == &right ? "" : " and " + right.name,
                ". accumulate(\"block\", terms=, extra_bits=) takes every format.");
  }
  Format reg = policy.accumulator ? policy.accumulator->format : float_format(8, 23);
  reg.rounding = policy.rounding.value_or(Rounding::TowardZero);
  const BlockAdder adder = adder_of(left, right, policy.block, reg);
  TORCH_CHECK(reg.kind == Kind::Float,
              "accumulate: expected a float as the register of block sums, but got ",
              policy.accumulator->name);
  const int widest = policy.block.late ? std::max(adder.bits, adder.late_bits()) : adder.bits;
  TORCH_CHECK(
      adder.bits >= 0 && adder.bits <= 52 &&
          widest + 2 + std::bit_width(static_cast<uint64_t>(policy.block.terms) + 1) <= 62,
      "accumulate: expected a block whose sum has 62 bits at most (2 before the point, those of ",
      policy.block.terms, " terms, and 0 to 52 of the register and extra_bits behind it), but got ",
      widest, " behind it. Take fewer extra bits or terms.");
  return adder;
}

} // namespace at::formats
