// What the ranks of a process group must agree on before codes move or values are added up: each
// sends what it is about to do.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <vector>

namespace at::formats {

inline constexpr int64_t kTermsSize = 512; // bytes of a message

struct Terms {
  std::string fault;    // what this rank's arguments lack, by which all ranks would fail or wait
  std::string call;     // the operator, and how it reduces
  std::string root;     // of those that have one
  std::string dtype;
  std::string size;     // where all ranks' tensors have the same
  std::string rounding; // of reductions alone, as the policy
  std::string policy;
  uint64_t number{0};   // of collectives: a seed; of messages between two ranks: the codes' bytes

  void write(void* message) const;
  // false: no terms, but a stock tensor's elements.
  bool read(const void* message);
};

std::string describe(const Accumulation& policy);

// Compares terms over all ranks, before they do something with tensors of a device: an error on
// each that names what they differ in, by rank. Returns rank 0's seed. Waits for every rank: over
// the group itself on the CPU; for GPUs by the group's store, which no stream waits for.
uint64_t agree(const Terms& own, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
               c10::Device device, std::chrono::milliseconds timeout);

// The same for what every rank sends to every other, after `agree`: elements by rank. An error on
// each where one awaits other than comes.
void agree_on_parts(const Terms& own, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& awaited,
                    const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10::Device device,
                    std::chrono::milliseconds timeout);

} // namespace at::formats
