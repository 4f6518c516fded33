#include <ATen/native/formats/operators/collectives/CollectiveWork.h>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <utility>

namespace at::formats {

CollectiveWork::CollectiveWork(c10::intrusive_ptr<c10d::Work> beneath,
                               std::vector<at::Tensor> results, std::function<void()> rest)
    : Work(-1, beneath->retrieveOpType()),
      beneath_(std::move(beneath)),
      results_(std::move(results)),
      rest_(std::move(rest)) {
}

std::exception_ptr CollectiveWork::run_rest() {
  const std::lock_guard<std::mutex> lock(rest_mutex_);
  if (finished_) return failure_;
  try {
    rest_();
    if (in_stream_order()) {
      const c10::Device device = results_[0].device();
      rested_.emplace(device.type());
      rested_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  finished_ = true;
  rest_ = nullptr; // also frees the values that replaced codes
  return failure_;
}

void CollectiveWork::finish() {
  if (const std::exception_ptr failure = run_rest()) std::rethrow_exception(failure);
  if (!rested_) return;
  // A future's callback may have run the rest in another stream.
  const c10::Device device = results_[0].device();
  rested_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

// A caller that gets true reads the tensors next, so the rest must have run. (The stock work may
// complete its future, and so this one's, before it counts as completed.)
bool CollectiveWork::isCompleted() {
  {
    const std::lock_guard<std::mutex> lock(rest_mutex_);
    if (finished_) return true;
  }
  if (!beneath_->isCompleted()) return false;
  if (!beneath_->exception()) run_rest(); // NCCL's work lacks isSuccess()
  return true;
}

bool CollectiveWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(rest_mutex_);
  return beneath_->isSuccess() && !failure_;
}

std::exception_ptr CollectiveWork::exception() const {
  const std::lock_guard<std::mutex> lock(rest_mutex_);
  return failure_ ? failure_ : beneath_->exception();
}

int CollectiveWork::sourceRank() const {
  return beneath_->sourceRank();
}

std::vector<at::Tensor> CollectiveWork::result() {
  beneath_->result(); // raises if there is no result yet
  finish();
  return results_;
}

void CollectiveWork::synchronize() {
  beneath_->synchronize();
  if (in_stream_order() || beneath_->isCompleted()) finish();
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  const bool done = beneath_->wait(timeout);
  if (done) finish();
  return done;
}

void CollectiveWork::blockCurrentStream() {
  beneath_->blockCurrentStream();
  if (in_stream_order()) finish();
}

void CollectiveWork::abort() {
  beneath_->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  const std::lock_guard<std::mutex> lock(future_mutex_);
  if (!future_) {
    auto self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
    future_ = beneath_->getFuture()->then(
        [self = std::move(self)](c10::ivalue::Future& beneath) -> c10::IValue {
          if (beneath.hasError()) std::rethrow_exception(beneath.exception_ptr());
          self->finish();
          return self->results_;
        },
        c10::ListType::create(c10::TensorType::get()));
  }
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFutureResult() {
  return beneath_->getFutureResult();
}

float CollectiveWork::getDuration() const {
  return beneath_->getDuration();
}

uint64_t CollectiveWork::getSequencenumber() const {
  return beneath_->getSequencenumber();
}

// ---- blocks ----

namespace {

struct Block {
  std::vector<at::Tensor> results;
  std::vector<std::function<void()>> rests;
};

std::map<const c10d::ProcessGroup*, Block>& blocks() {
  thread_local std::map<const c10d::ProcessGroup*, Block> own;
  return own;
}

} // namespace

void begin_together(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  blocks()[group.get()] = {}; // discards what an error left of the last block
}

bool left_for_all(const c10d::ProcessGroup& group, const std::vector<at::Tensor>& results,
                  const std::function<void()>& rest) {
  const auto found = blocks().find(&group);
  if (found == blocks().end()) return false;
  Block& block = found->second;
  block.results.insert(block.results.end(), results.begin(), results.end());
  block.rests.push_back(rest);
  return true;
}

c10::intrusive_ptr<c10d::Work> end_together(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                            c10::intrusive_ptr<c10d::Work> beneath) {
  const auto found = blocks().find(group.get());
  if (found == blocks().end()) return nullptr;
  const Block block = std::move(found->second);
  blocks().erase(found);
  if (block.rests.empty()) return nullptr;
  auto rest = [rests = block.rests] {
    for (const auto& one : rests) one();
  };
  if (beneath)
    return c10::make_intrusive<CollectiveWork>(std::move(beneath), block.results, std::move(rest));
  rest();
  return nullptr;
}

} // namespace at::formats
