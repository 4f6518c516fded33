// DLPack's C exchange API.
#pragma once
#include <torch/csrc/python_headers.h>

namespace torch::formats {

// Makes it refuse format tensors.
void patch_dlpack_exchange();

} // namespace torch::formats
