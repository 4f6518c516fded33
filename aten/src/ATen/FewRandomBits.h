// How many random bits the mode `stochastic` draws for an element in a block that says so:
// hardware's few, by IEEE P3109's definitions. Apart from the mode (FormatRounding.h), which most
// callers ask alone.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>

namespace at::formats {

struct FewRandomBits {
  uint8_t count{0}; // 0: as many as a format says itself
  c10::formats::FewBits kind{c10::formats::FewBits::A};
};

// What holds on this thread beside a rounding override of `stochastic`; setting it returns what was
// set before.
FewRandomBits few_bits_override();
FewRandomBits set_few_bits_override(FewRandomBits bits);

// Gives a format the mode, and the number of random bits, that override its own on this thread.
void round_by_override(c10::formats::Format& format);

} // namespace at::formats
