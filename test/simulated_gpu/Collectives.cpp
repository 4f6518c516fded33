// NCCL between processes on one machine. Ranks exchange files in a folder that the group's
// identifier names. A call returns when it is done, as NCCL may do, so that a missing wait goes
// unnoticed. A rank that does not arrive is an error after a minute.
#include "Launch.h"
#include "Runtime.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace simulated_gpu {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

struct Group {
  fs::path folder;
  int rank, size, device;
  int64_t collectives = 0;
  std::map<int, int64_t> sent, received; // number of messages, by the other rank
  int splits = 0;
};

Group& of(ncclComm_t handle) {
  return *reinterpret_cast<Group*>(handle);
}

// ---- files ----

void put(const fs::path& place, const Bytes& bytes) {
  const fs::path beside = place.string() + ".part";
  std::ofstream(beside, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  fs::rename(beside, place); // complete, or absent
}

std::optional<Bytes> take(const fs::path& place) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!fs::exists(place)) {
    if (std::chrono::steady_clock::now() > end) {
      std::fprintf(
          stderr,
          "simulated GPU: expected %s of another rank, but it did not come within a minute\n",
          place.c_str());
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::ifstream file(place, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// Returns the bytes of every rank. A rank that has all of a call's bytes has seen that all ranks
// had those of the call before.
std::optional<std::vector<Bytes>> shared_by_all(Group& group, const Bytes& own) {
  const auto place = [&](int64_t call, int rank) {
    return group.folder / (std::to_string(call) + "-" + std::to_string(rank));
  };
  const int64_t call = group.collectives++;
  put(place(call, group.rank), own);
  std::vector<Bytes> all;
  for (int rank = 0; rank < group.size; ++rank) {
    auto found = take(place(call, rank));
    if (!found) return std::nullopt;
    all.push_back(std::move(*found));
  }
  if (call > 0) fs::remove(place(call - 1, group.rank));
  return all;
}

// ---- numbers ----

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

template <typename T, typename Sum>
void reduce_as(Bytes& into, const std::vector<Bytes>& all, ncclRedOp_t op) {
  auto* const results = reinterpret_cast<T*>(into.data());
  for (size_t i = 0; i < into.size() / sizeof(T); ++i) {
    const auto at = [&](size_t rank) {
      return static_cast<Sum>(reinterpret_cast<const T*>(all[rank].data())[i]);
    };
    Sum sum = at(0);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      const Sum next = at(rank);
      switch (op) {
        case ncclProd: sum = static_cast<Sum>(sum * next); break;
        case ncclMax: sum = next > sum ? next : sum; break;
        case ncclMin: sum = next < sum ? next : sum; break;
        default: sum = static_cast<Sum>(sum + next);
      }
    }
    results[i] =
        static_cast<T>(op == ncclAvg ? static_cast<Sum>(sum / static_cast<Sum>(all.size())) : sum);
  }
}

bool reduce(Bytes& into, const std::vector<Bytes>& all, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8: reduce_as<int8_t, int8_t>(into, all, op); return true;
    case ncclUint8: reduce_as<uint8_t, uint8_t>(into, all, op); return true;
    case ncclInt32: reduce_as<int32_t, int32_t>(into, all, op); return true;
    case ncclUint32: reduce_as<uint32_t, uint32_t>(into, all, op); return true;
    case ncclInt64: reduce_as<int64_t, int64_t>(into, all, op); return true;
    case ncclUint64: reduce_as<uint64_t, uint64_t>(into, all, op); return true;
    case ncclFloat16: reduce_as<__half, float>(into, all, op); return true;
    case ncclBfloat16: reduce_as<__nv_bfloat16, float>(into, all, op); return true;
    case ncclFloat32: reduce_as<float, float>(into, all, op); return true;
    case ncclFloat64: reduce_as<double, double>(into, all, op); return true;
    default: return false;
  }
}

// ---- calls ----

// Reads a call's memory when the stream has reached it. As in NCCL, a pointer to the host's memory,
// or past the end of an allocation, is an error.
std::optional<Bytes> read(const Group& group, const void* from, size_t bytes) {
  const Place place = place_of(from);
  if (bytes == 0) return Bytes();
  if (place.device != group.device || !within(place, from, bytes)) return std::nullopt;
  const OpenMemory open;
  return Bytes(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
}

bool write(const Group& group, void* to, const char* from, size_t bytes) {
  const Place place = place_of(to);
  if (bytes == 0) return true;
  if (place.device != group.device || !within(place, to, bytes)) return false;
  const OpenMemory open;
  std::memcpy(to, from, bytes);
  return true;
}

using Call = std::function<ncclResult_t()>;
struct Pending {
  int depth = 0;
  std::vector<Call> sends, others;
};
Pending& pending() {
  thread_local Pending own;
  return own;
}

ncclResult_t run(std::vector<Call>& calls) {
  for (const Call& call : std::exchange(calls, {})) {
    if (const ncclResult_t result = call()) return result;
  }
  return ncclSuccess;
}

// Runs the call once the stream has reached it: at once, or at the end of a group, sends first.
ncclResult_t submit(cudaStream_t stream, bool sends, Call call) {
  Call when_there = [stream, call = std::move(call)] {
    return cudaStreamSynchronize(stream) == cudaSuccess ? call() : ncclUnhandledCudaError;
  };
  if (pending().depth == 0) return when_there();
  (sends ? pending().sends : pending().others).push_back(std::move(when_there));
  return ncclSuccess;
}

// A collective: `from` is this rank's part, and `then` processes the parts of all.
ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const void* from, size_t bytes,
                        std::function<ncclResult_t(const std::vector<Bytes>&)> then) {
  return submit(stream, false, [=] {
    const auto own = read(of(comm), from, bytes);
    if (!own) return ncclInvalidArgument;
    const auto all = shared_by_all(of(comm), *own);
    return all ? then(*all) : ncclRemoteError;
  });
}

// A collective that reduces: the rank gets `bytes` of the result, from `first` on.
ncclResult_t reduction(ncclComm_t comm, cudaStream_t stream, const void* from, size_t n,
                       ncclDataType_t type, ncclRedOp_t op, void* to, size_t first, size_t bytes) {
  return collective(comm, stream, from, n * size_of(type), [=](const std::vector<Bytes>& all) {
    Bytes result(n * size_of(type));
    return reduce(result, all, type, op) && write(of(comm), to, result.data() + first, bytes)
        ? ncclSuccess
        : ncclInvalidArgument;
  });
}

// A collective that only moves: it writes `part` bytes of each rank, from `first` on, one after the
// other.
ncclResult_t rows(ncclComm_t comm, cudaStream_t stream, const void* from, size_t bytes, void* to,
                  size_t first, size_t part) {
  return collective(comm, stream, from, bytes, [=](const std::vector<Bytes>& all) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (!write(of(comm), static_cast<char*>(to) + rank * part, all[rank].data() + first, part))
        return ncclInvalidArgument;
    }
    return ncclSuccess;
  });
}

ncclResult_t made(ncclComm_t* comm, const fs::path& folder, int size, int rank) {
  auto* const group =
      new Group{.folder = folder, .rank = rank, .size = size, .device = current_device()};
  fs::create_directories(folder);
  *comm = reinterpret_cast<ncclComm_t>(group);
  return shared_by_all(*group, {}) ? ncclSuccess : ncclRemoteError;
}

} // namespace
} // namespace simulated_gpu

using namespace simulated_gpu;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::string name = (fs::temp_directory_path() / "simulated-nccl-XXXXXX").string();
  if (!mkdtemp(name.data()) || name.size() >= sizeof(id->internal)) return ncclSystemError;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return made(comm, id.internal, size, rank);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  return made(comm, id.internal, size, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t*) {
  return made(comm, ids[0].internal, size, rank);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* split, ncclConfig_t*) {
  Group& group = of(comm);
  const int own[2] = {color, key};
  const auto all = shared_by_all(
      group, Bytes(reinterpret_cast<const char*>(own), reinterpret_cast<const char*>(own + 2)));
  if (!all) return ncclRemoteError;
  std::vector<std::pair<int, int>> members; // sorted by key, then by rank
  for (int rank = 0; rank < group.size; ++rank) {
    int theirs[2];
    std::memcpy(theirs, (*all)[rank].data(), sizeof(theirs));
    if (theirs[0] == color) members.emplace_back(theirs[1], rank);
  }
  std::sort(members.begin(), members.end());
  const int number = group.splits++;
  *split = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int place = 0;
  while (members[place].second != group.rank) ++place;
  const fs::path folder =
      group.folder / ("split-" + std::to_string(number) + "-" + std::to_string(color));
  return made(split, folder, static_cast<int>(members.size()), place);
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete &of(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return ncclCommDestroy(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  *size = of(comm).size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = of(comm).rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = of(comm).device;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++pending().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--pending().depth > 0) return ncclSuccess;
  if (const ncclResult_t result = run(pending().sends)) return result;
  return run(pending().others);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return reduction(comm, stream, from, n, type, op, to, 0, n * size_of(type));
}

ncclResult_t ncclReduce(const void* from, void* to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return reduction(comm, stream, from, n, type, op, to, 0,
                   of(comm).rank == root ? n * size_of(type) : 0);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const size_t part = n * size_of(type);
  return reduction(comm, stream, from, n * of(comm).size, type, op, to, part * of(comm).rank, part);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t part = n * size_of(type);
  return rows(comm, stream, from, part, to, 0, part);
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t n, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  const size_t part = n * size_of(type);
  return rows(comm, stream, from, part * of(comm).size, to, part * of(comm).rank, part);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = n * size_of(type);
  return collective(
      comm, stream, of(comm).rank == root ? from : to, bytes, [=](const std::vector<Bytes>& all) {
        return write(of(comm), to, all[root].data(), bytes) ? ncclSuccess : ncclInvalidArgument;
      });
}
ncclResult_t ncclBcast(void* buffer, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, n, type, root, comm, stream);
}

static fs::path message(const Group& group, int from, int to, int64_t number) {
  return group.folder /
      ("message-" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number));
}

ncclResult_t ncclSend(const void* from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(stream, true, [=] {
    const auto bytes = read(of(comm), from, n * size_of(type));
    if (!bytes) return ncclInvalidArgument;
    Group& group = of(comm);
    put(message(group, group.rank, peer, group.sent[peer]++), *bytes);
    return ncclSuccess;
  });
}

ncclResult_t ncclRecv(void* to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(stream, false, [=] {
    Group& group = of(comm);
    const fs::path place = message(group, peer, group.rank, group.received[peer]++);
    const auto bytes = take(place);
    if (!bytes) return ncclRemoteError;
    fs::remove(place);
    return bytes->size() == n * size_of(type) && write(group, to, bytes->data(), bytes->size())
        ? ncclSuccess
        : ncclInvalidArgument;
  });
}

} // extern "C"
