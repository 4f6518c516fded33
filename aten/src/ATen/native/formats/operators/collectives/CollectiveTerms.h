// Terms on which the ranks of a process group must agree before codes move or values are added up.
// Each rank sends its own.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <vector>

namespace at::formats {

inline constexpr int64_t kTermsSize = 512; // bytes of a message

struct Terms {
  std::string fault; // a fault in this rank's arguments, for which all ranks would fail or wait
  std::string call; // the operator and its reduction
  std::string root; // the root rank, if the operator has one
  std::string dtype;
  std::string size; // if all ranks' tensors have the same
  std::string rounding; // of reductions only, like the policy
  std::string policy;
  uint64_t number{0}; // of collectives: a seed; between two ranks: the number of bytes

  void write(void* message) const;
  // Returns false if the message has a stock tensor's elements instead of terms.
  bool read(const void* message);
};

std::string describe(const Accumulation& policy);

// Compares all ranks' terms before an operation on a device's tensors. If they differ, every rank
// raises an error that names the differences by rank. Returns rank 0's seed. Waits for every rank:
// on the CPU over the group itself, for GPUs by the group's store, which no stream waits for.
uint64_t agree(const Terms& own, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
               c10::Device device, std::chrono::milliseconds timeout);

// The same for element counts that every rank sends to every other, after `agree`. Every rank
// raises if a rank expects another number than is sent.
void agree_on_parts(const Terms& own, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& awaited,
                    const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10::Device device,
                    std::chrono::milliseconds timeout);

} // namespace at::formats
