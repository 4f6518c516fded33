// torch.autocast with a dtype of ours as its dtype.
#pragma once

namespace at::formats {

// Whether the calling thread's autocast dtype of the CPU is one of ours, within a block or not.
bool autocast_has_format();

} // namespace at::formats
