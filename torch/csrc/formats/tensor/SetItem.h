// x[index] = number, where x is a format tensor.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Makes numbers assigned to items of a format tensor round once, to its format.
void patch_setitem();

} // namespace torch::formats
