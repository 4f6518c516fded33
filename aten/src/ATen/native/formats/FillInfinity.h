// Infinities that a caller writes as numbers, in formats that have none: what they become where they are put into a tensor, and what they
// mean in a comparison.
#pragma once
#include <ATen/FormatTensor.h>

namespace at::formats {

// For the process. Saturate: the format's outermost number of that sign. Nan: as a cast of a tensor (NaR, or the NaN of fn floats).
enum class FillInfinity : uint8_t { Saturate, Nan };
FillInfinity fill_infinity();
void set_fill_infinity(FillInfinity setting);

// The number that stands for the given one in a tensor of the format; the first time that it stands for an infinity, a warning says so.
double fill_number(double value, const FormatEntry& entry);
c10::Scalar fill_number(const c10::Scalar& value, const FormatEntry& entry);
// What an infinity in a comparison is taken for: what filling with it gives, so that filled places are found. (NaN is none: the infinity.)
double compared_number(double value, const FormatEntry& entry);

} // namespace at::formats
