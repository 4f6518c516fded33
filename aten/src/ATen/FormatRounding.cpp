#include <ATen/FormatRounding.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/FewRandomBits.h>
#include <ATen/OverrideUses.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/stock/Backend.h>
#include <c10/formats/tables/ValueTable.h>

#include <mutex>

namespace at::formats {

static thread_local std::optional<Rounding> override_mode;
static thread_local FewRandomBits override_bits;
static thread_local std::optional<at::Generator> word_source;
static thread_local bool rounds_logarithms = false;

OverrideUses& override_uses() {
  static thread_local OverrideUses uses;
  return uses;
}

std::optional<Rounding> rounding_override() {
  return override_mode;
}

std::optional<Rounding> set_rounding_override(std::optional<Rounding> mode) {
  return std::exchange(override_mode, mode);
}

FewRandomBits few_bits_override() {
  return override_bits;
}

FewRandomBits set_few_bits_override(FewRandomBits bits) {
  return std::exchange(override_bits, bits);
}

void round_by_override(Format& format) {
  if (!override_mode) return;
  ++override_uses().rounding;
  format.rounding = *override_mode;
  if (override_bits.count == 0 || format.rounding != Rounding::Stochastic) return;
  format.random_bits = override_bits.count;
  format.few_bits = override_bits.kind;
}

LogarithmGuard::LogarithmGuard(bool on_logarithms)
    : previous_(std::exchange(rounds_logarithms, rounds_logarithms || on_logarithms)) {
}
LogarithmGuard::~LogarithmGuard() {
  rounds_logarithms = previous_;
}

Format rounding_format(const FormatEntry& entry) {
  Format f = entry.format;
  round_by_override(f);
  if (rounds_logarithms && c10::formats::is_logarithmic(f)) f = c10::formats::on_logarithms(f);
  return f;
}

std::optional<at::Generator> set_word_source(std::optional<at::Generator> generator) {
  return std::exchange(word_source, std::move(generator));
}

bool has_word_source() {
  return word_source.has_value();
}

Seed next_seed(const std::optional<at::Generator>& generator, c10::Device device) {
  const std::optional<at::Generator>& chosen = generator ? generator : word_source;
  if (device.is_cuda() && !by_stock(device)) {
    if (!(chosen && chosen->device().is_cpu())) return draw_on_gpu(chosen, device);
    expect_no_graph(device);
  }
  auto* source = at::get_generator_or_default<at::CPUGeneratorImpl>(
      chosen, at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> lock(source->mutex_);
  return source->random64();
}

RandomWords next_words(const Format& format, const std::optional<at::Generator>& generator,
                       c10::Device device) {
  return c10::formats::is_stochastic(format.rounding) ? RandomWords{next_seed(generator, device)}
                                                      : RandomWords{};
}

} // namespace at::formats
