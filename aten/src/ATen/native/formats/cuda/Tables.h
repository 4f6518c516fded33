// Tables of values in a GPU's memory.
#pragma once
#include <ATen/native/formats/cuda/Launch.h>
#include <c10/formats/tables/ValueTable.h>

namespace at::formats::cuda {

using c10::formats::Format;

// A format as code on the current GPU reads it. A table's pointer is to its copy there and must not
// be followed on the host. The copy is made when the GPU first uses the table, but not while a
// graph is captured, and lives as long as the process. If the CUDA runtime refuses the memory, this
// thread's next launch returns the error.
Format on_device(const Format& format);

} // namespace at::formats::cuda
