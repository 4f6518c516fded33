// The dtype objects by number, and the release of unused numbers.
#pragma once
#include <c10/formats/FormatRegistry.h>

namespace torch::formats {

// Frees the number of a format if only the table of dtype objects has its object. Python's modules
// and tables must have dropped it before.
bool retire_dtype(const c10::formats::FormatEntry& entry);

} // namespace torch::formats
