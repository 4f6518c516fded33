// torch.autocast with a format dtype.
#pragma once

#include <c10/core/Device.h>

#include <array>

namespace at::formats {

// Devices whose autocast may have a format dtype.
inline constexpr std::array kAutocastDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA};

// Whether the calling thread's autocast dtype of a device is a format dtype, within a block or not.
bool autocast_has_format(c10::DeviceType device);

// The same for any of these devices.
bool autocast_has_format();

} // namespace at::formats
