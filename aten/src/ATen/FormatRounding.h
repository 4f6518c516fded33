// How a thread rounds now: by the dtype's own mode or the mode of a surrounding block. Also the
// random words of stochastic modes.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/formats/FormatRegistry.h>
#include <c10/formats/codec/Philox.h>

#include <optional>

namespace at::formats {

using c10::formats::Format;
using c10::formats::FormatEntry;
using c10::formats::RandomWords;
using c10::formats::Rounding;
using c10::formats::Seed;

// The mode that overrides every dtype's own on this thread, if any. The setter returns the previous
// one.
std::optional<Rounding> rounding_override();
std::optional<Rounding> set_rounding_override(std::optional<Rounding> mode);

// Sets the mode for one scope.
struct RoundingGuard {
  explicit RoundingGuard(std::optional<Rounding> mode) : previous_(set_rounding_override(mode)) {}
  ~RoundingGuard() { set_rounding_override(previous_); }
  RoundingGuard(const RoundingGuard&) = delete;
  RoundingGuard& operator=(const RoundingGuard&) = delete;

 private:
  std::optional<Rounding> previous_;
};

// For one scope: rounds results as results of logarithmic formats are
// (c10::formats::on_logarithms), or as before.
struct LogarithmGuard {
  explicit LogarithmGuard(bool on_logarithms);
  ~LogarithmGuard();
  LogarithmGuard(const LogarithmGuard&) = delete;
  LogarithmGuard& operator=(const LogarithmGuard&) = delete;

 private:
  bool previous_;
};

// A dtype's format, with the mode that this thread rounds by.
Format rounding_format(const FormatEntry& entry);

// The generator that this thread's calls draw from instead of torch's default one, whose other
// users then see no change. The setter returns the previous one.
std::optional<at::Generator> set_word_source(std::optional<at::Generator> generator);
bool has_word_source();

// For a call with a generator argument: its rounding draws from that generator too, unless this
// thread already has a source.
struct WordSourceGuard {
  explicit WordSourceGuard(const std::optional<at::Generator>& generator)
      : set_(generator && !has_word_source()) {
    if (set_) set_word_source(generator);
  }
  ~WordSourceGuard() {
    if (set_) set_word_source(std::nullopt);
  }
  WordSourceGuard(const WordSourceGuard&) = delete;
  WordSourceGuard& operator=(const WordSourceGuard&) = delete;

 private:
  bool set_;
};

// Draws 64 bits: from the given generator, else from this thread's, else from torch's default one
// for the device of the rounded tensors. The host draws them, even from a CUDA device's generator,
// except within a CUDA graph.
Seed next_seed(const std::optional<at::Generator>& generator = std::nullopt,
               c10::Device device = c10::kCPU);
// Fresh random words for one call, if the format's mode needs any. One seed is drawn, whatever the
// number of elements.
RandomWords next_words(const Format& format,
                       const std::optional<at::Generator>& generator = std::nullopt,
                       c10::Device device = c10::kCPU);

} // namespace at::formats
