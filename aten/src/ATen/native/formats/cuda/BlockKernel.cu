// Rounds to an element format times a power of two that a block shares, as
// native/formats/chop/BlockChop.cpp does. One thread handles a block.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <c10/formats/BlockScale.h>

namespace at::formats::cuda {
namespace {

constexpr uint32_t kInfinity = 0x7f80'0000;

struct ChopBlocks {
  Blocks blocks;
  const float* values;
  float* results;
  float *scaled_out, *rounded_out; // either may be nullptr
  Encoder<float> encode;
  Decoder<float> decode;

  // Blocks are counted row by row. Random words are indexed as if the last block of each row were
  // whole.
  TD_HOST_DEVICE void operator()(int64_t block) const {
    using c10::formats::bits_as;
    const int64_t in_row = (blocks.length + blocks.size - 1) / blocks.size, row = block / in_row,
                  column = block % in_row * blocks.size;
    const int64_t left = blocks.length - column, n = left < blocks.size ? left : blocks.size,
                  first = row * blocks.length + column;
    uint32_t most = 0; // compared by bits, where NaN is the greatest magnitude
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = bits_as<uint32_t>(values[first + i]) & 0x7fff'ffff;
      most = magnitude > most ? magnitude : most;
    }
    const bool finite = most < kInfinity;
    const int exponent = finite ? blocks.scale(static_cast<int32_t>(most)) : 0;
    const float nan = bits_as<float>(c10::formats::nan_bits<float>());
    const float inverse = finite ? c10::formats::scale_value(-exponent) : nan,
                scale = finite ? c10::formats::scale_value(exponent) : nan;
    for (int64_t i = 0; i < n; ++i) {
      const float x = values[first + i];
      float scaled = x * inverse;
      // Keeps nonzero numbers nonzero, for modes that tell a tiny magnitude from 0.
      if (blocks.careful && scaled == 0 && x != 0) scaled = x < 0 ? -0x1p-126F : 0x1p-126F;
      const uint64_t code = encode.at_word(scaled, static_cast<uint64_t>(block * blocks.size + i));
      const float rounded = decode(static_cast<uint32_t>(code));
      results[first + i] = rounded * scale;
      if (scaled_out) {
        scaled_out[first + i] = scaled;
        rounded_out[first + i] = rounded;
      }
    }
  }
};

Status chop_blocks(const Format& f, const Blocks& blocks, const float* values, float* results,
                   int64_t n, const Seed& seed, float* scaled, float* rounded, Stream stream) {
  const int64_t in_row = (blocks.length + blocks.size - 1) / blocks.size;
  return for_each(n / blocks.length * in_row, stream,
                  ChopBlocks{blocks, values, results, scaled, rounded, Encoder<float>(f, {seed}),
                             Decoder<float>(f)});
}

} // namespace

void fill_blocks(CudaKernels& k) {
  k.chop_blocks = &chop_blocks;
}

} // namespace at::formats::cuda
