// DLPack's C exchange API.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// It refuses tensors of ours.
void patch_dlpack_exchange();

} // namespace torch::formats
