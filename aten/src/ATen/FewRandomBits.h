// How many random bits the mode `stochastic` draws for an element in a block that sets the number.
// Hardware draws few, as IEEE P3109 defines. A header apart from FormatRounding.h, because most
// callers need only the mode.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>

namespace at::formats {

struct FewRandomBits {
  uint8_t count{0}; // 0: the format's own number
  c10::formats::FewBits kind{c10::formats::FewBits::A};
};

// The number of bits that goes with this thread's rounding override `stochastic`. The setter
// returns the previous one.
FewRandomBits few_bits_override();
FewRandomBits set_few_bits_override(FewRandomBits bits);

// Sets a format's mode and number of random bits to this thread's overrides, if any.
void round_by_override(c10::formats::Format& format);

} // namespace at::formats
