// How a thread rounds right now: the dtype's own mode or the one that a block of code asks for, and
// the random words of stochastic modes.
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

// The mode that overrides every dtype's own on this thread, if there is one; returns what was set
// before.
std::optional<Rounding> rounding_override();
std::optional<Rounding> set_rounding_override(std::optional<Rounding> mode);

// A mode for one scope.
struct RoundingGuard {
  explicit RoundingGuard(std::optional<Rounding> mode) : previous_(set_rounding_override(mode)) {}
  ~RoundingGuard() { set_rounding_override(previous_); }
  RoundingGuard(const RoundingGuard&) = delete;
  RoundingGuard& operator=(const RoundingGuard&) = delete;

 private:
  std::optional<Rounding> previous_;
};

// For one scope: results are rounded as logarithmic formats' own results are
// (c10::formats::on_logarithms), or as before.
struct LogarithmGuard {
  explicit LogarithmGuard(bool on_logarithms);
  ~LogarithmGuard();
  LogarithmGuard(const LogarithmGuard&) = delete;
  LogarithmGuard& operator=(const LogarithmGuard&) = delete;

 private:
  bool previous_;
};

// A dtype's format as this thread rounds to it.
Format rounding_format(const FormatEntry& entry);

// The generator that this thread's calls draw from instead of torch's default one, so that what
// else draws from that one is left as it is; returns what was set before.
std::optional<at::Generator> set_word_source(std::optional<at::Generator> generator);
bool has_word_source();

// Where one call has a generator: its rounding draws from it, too, unless this thread has a source
// of its own.
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

// 64 bits of a generator, of this thread's, or of torch's default one for the device of the tensors
// that are rounded. The host draws them, from a CUDA device's generator too, but within a CUDA
// graph.
Seed next_seed(const std::optional<at::Generator>& generator = std::nullopt,
               c10::Device device = c10::kCPU);
// Fresh random words for one call, where the format's mode needs any: one seed is drawn, whatever
// the number of elements.
RandomWords next_words(const Format& format,
                       const std::optional<at::Generator>& generator = std::nullopt,
                       c10::Device device = c10::kCPU);

} // namespace at::formats
