// torch.autocast with a dtype of ours as its dtype.
#pragma once

#include <c10/core/Device.h>

#include <array>

namespace at::formats {

// Where an autocast may have a dtype of ours.
inline constexpr std::array kAutocastDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA};

// Whether the calling thread's autocast dtype of a device is one of ours, within a block or not.
bool autocast_has_format(c10::DeviceType device);

// Of any of these devices.
bool autocast_has_format();

} // namespace at::formats
