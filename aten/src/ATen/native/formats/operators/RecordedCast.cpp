// Who records a graph hears of casts.
#include <ATen/native/formats/operators/RecordedCast.h>

#include <utility>

namespace at::formats {

static thread_local CastRecorder cast_recorder;

void set_cast_recorder(CastRecorder recorder) {
  cast_recorder = std::move(recorder);
}

bool casts_are_recorded() {
  return static_cast<bool>(cast_recorder);
}

at::Tensor recorded_cast(const at::Tensor& from, at::Tensor result) {
  if (cast_recorder) cast_recorder(from, result);
  return result;
}

} // namespace at::formats
