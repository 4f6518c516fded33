// What a collective of ours hands back: PyTorch's work, and what is left to do once it is done.
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
// whether it is done, or completes its future; what it throws is thrown to all who wait.
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
  // Of results on a GPU what is done is done in the order of a stream, and nobody waits for the
  // work beneath.
  bool in_stream_order() const { return !results_.empty() && results_[0].is_cuda(); }

  c10::intrusive_ptr<c10d::Work> beneath_;
  std::vector<at::Tensor> results_;
  std::function<void()> rest_;
  mutable std::mutex rest_mutex_;
  bool finished_{false};
  std::exception_ptr failure_;
  std::optional<c10::Event> rested_; // behind what the rest gave a GPU to do
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A block of calls that NCCL begins together (batch_isend_irecv), of which none has work of its
// own: what is left to do of each is done once the block is. Blocks are a thread's.
void begin_together(const c10::intrusive_ptr<c10d::ProcessGroup>& group);
// Whether the group has a block, which takes these.
bool left_for_all(const c10d::ProcessGroup& group, const std::vector<at::Tensor>& results,
                  const std::function<void()>& rest);
// The block's work with what its calls left, or null where they left nothing. Without work the
// block is done behind what the current stream was given, and the rest, too.
c10::intrusive_ptr<c10d::Work> end_together(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                            c10::intrusive_ptr<c10d::Work> beneath);

} // namespace at::formats
