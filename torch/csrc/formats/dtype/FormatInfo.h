// torch.finfo of a number format.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

void patch_finfo();

} // namespace torch::formats
