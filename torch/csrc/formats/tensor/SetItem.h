// x[index] = number, where x is a tensor of ours.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Numbers assigned to an item of a tensor of ours round once, to its format.
void patch_setitem();

} // namespace torch::formats
