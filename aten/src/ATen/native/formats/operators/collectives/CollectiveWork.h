// The work that a collective on format tensors returns: PyTorch's work, and the rest to do after
// it.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace at::formats {

// Forwards to the stock work beneath. `rest` runs once, on the thread that first waits, asks
// whether the work is done, or completes its future. Its exception is thrown to all that wait.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(c10::intrusive_ptr<c10d::Work> beneath, std::vector<at::Tensor> results,
                 std::function<void()> rest);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;

 private:
  std::exception_ptr run_rest();
  void finish();
  // With results on a GPU, the rest is queued in a stream, and nobody waits for the work beneath.
  bool in_stream_order() const { return !results_.empty() && results_[0].is_cuda(); }

  c10::intrusive_ptr<c10d::Work> beneath_;
  std::vector<at::Tensor> results_;
  std::function<void()> rest_;
  mutable std::mutex rest_mutex_;
  bool finished_{false};
  std::exception_ptr failure_;
  std::optional<c10::Event> rested_; // recorded behind the rest's GPU work
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Begins a block of calls that NCCL starts together (batch_isend_irecv). None of the calls has work
// of its own: their rests run after the block. Blocks belong to a thread.
void begin_together(const c10::intrusive_ptr<c10d::ProcessGroup>& group);
// Leaves a call's rest to the group's block; returns false if there is no block.
bool left_for_all(const c10d::ProcessGroup& group, const std::vector<at::Tensor>& results,
                  const std::function<void()>& rest);
// Ends the block. Returns its work with the calls' rests, or null if there are none. Without work
// from NCCL, the block is done when the current stream's queue is, and so are the rests.
c10::intrusive_ptr<c10d::Work> end_together(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                            c10::intrusive_ptr<c10d::Work> beneath);

} // namespace at::formats
