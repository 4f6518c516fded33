// Tables of values in a GPU's memory.
#pragma once
#include <ATen/native/formats/cuda/Launch.h>
#include <c10/formats/tables/ValueTable.h>

namespace at::formats::cuda {

using c10::formats::Format;

// A format as code on the current GPU reads it: of a table of values, whose pointer is to the
// table's copy there then, and must not be followed on the host. It is made when the table is first
// used on that GPU, not while a graph is captured, and lives as long as the process, as tables do.
// Where the CUDA runtime refuses the memory, the next launch of this thread gives back why.
Format on_device(const Format& format);

} // namespace at::formats::cuda
