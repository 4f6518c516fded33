// The dtype objects by number: numbers that nobody uses any more are taken back.
#pragma once
#include <c10/formats/FormatRegistry.h>

namespace torch::formats {

// Takes the number of a format back if nobody but the table of dtype objects has its object (in
// Python's modules and tables it must not be any more).
bool retire_dtype(const c10::formats::FormatEntry& entry);

} // namespace torch::formats
