// Runs a body for each index, on the device. If the compiler is the host's, it runs in a loop, so
// that kernels are tested without a GPU.
//
// A body is a struct of raw pointers, numbers and codecs with `TD_HOST_DEVICE void
// operator()(int64_t i) const`, because nvcc takes no device lambda within a generic one. A body
// with a type Shared has such an object in each block of threads. `prepare(shared, thread,
// threads)` fills it, and the body is called as `operator()(const Shared&, int64_t i)`.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define TD_NOINLINE __noinline__
#define TD_UNROLL _Pragma("unroll") // so that arrays indexed by the loop can be registers
#define TD_UNROLL_BY(n) TD_PRAGMA(unroll n)
#define TD_PRAGMA(text) _Pragma(#text)
#else
#define TD_NOINLINE __attribute__((noinline))
#define TD_UNROLL
#define TD_UNROLL_BY(n)
#endif
#ifdef TORCH_DTYPES_SIMULATED_GPU
#include TORCH_DTYPES_SIMULATED_GPU

#include <typeinfo>
#endif
#if defined(__CUDACC__) || defined(TORCH_DTYPES_SIMULATED_GPU)
#define TD_CUDA_RUNTIME
#endif

namespace at::formats::cuda {

// A cudaStream_t. The type lets callers do without CUDA's headers.
using Stream = void*;

// A launch's result: 0, or the CUDA runtime's error.
using Status = int;

template <typename Body>
concept shares = requires { typename Body::Shared; };

#ifdef TD_CUDA_RUNTIME
// The runtime's error if a table's copy could not be made for this launch (Tables.h), else 0.
Status take_refused();
#endif

#ifdef __CUDACC__

constexpr int kThreads = 256;
// Each thread takes further indices in steps of the whole grid.
constexpr int64_t kMostBlocks = 1 << 16;

// The least number of blocks on a multiprocessor: a body's kLeastBlocks. A larger number makes the
// compiler give each thread fewer registers.
template <typename Body>
constexpr int least_blocks() {
  if constexpr (requires { Body::kLeastBlocks; }) return Body::kLeastBlocks;
  else return 1;
}
// For bodies that prepare something: as many blocks as the device holds at once. Further blocks
// would prepare it again.
inline int64_t most_prepared_blocks() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return kMostBlocks;
  constexpr int most_threads = 2048; // on a multiprocessor
  return static_cast<int64_t>(count) * (most_threads / kThreads);
}

template <typename Body>
__global__ void __launch_bounds__(kThreads, least_blocks<Body>())
    run_each(const __grid_constant__ Body body, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x,
                first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if constexpr (shares<Body>) {
    __shared__ typename Body::Shared shared;
    body.prepare(shared, static_cast<int>(threadIdx.x), kThreads);
    __syncthreads();
    for (int64_t i = first; i < n; i += step) body(shared, i);
  } else {
    for (int64_t i = first; i < n; i += step) body(i);
  }
}

template <typename Body>
Status for_each(int64_t n, Stream stream, const Body& body) {
  if (const Status refused = take_refused()) return refused;
  if (n <= 0) return 0;
  const int64_t most = shares<Body> ? most_prepared_blocks() : kMostBlocks;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  run_each<<<static_cast<unsigned>(blocks < most ? blocks : most), kThreads, 0,
             static_cast<cudaStream_t>(stream)>>>(body, n);
  return static_cast<Status>(cudaGetLastError());
}

#else

template <typename Body>
void run_each(int64_t n, const Body& body) {
  if constexpr (shares<Body>) {
    typename Body::Shared shared;
    body.prepare(shared, 0, 1);
    for (int64_t i = 0; i < n; ++i) body(shared, i);
  } else {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
}

template <typename Body>
Status for_each(int64_t n, [[maybe_unused]] Stream stream, const Body& body) {
#ifdef TORCH_DTYPES_SIMULATED_GPU
  if (const Status refused = take_refused()) return refused;
  if (n <= 0) return 0;
  return static_cast<Status>(simulated_gpu::launch(
      static_cast<cudaStream_t>(stream), typeid(Body).name(), [n, body] { run_each(n, body); }));
#else
  run_each(n, body);
  return 0;
#endif
}

#endif

// ---- several elements a thread, in one access to memory ----

template <typename T, int n>
struct alignas(sizeof(T) * n) Pack {
  T at[n];
};
template <int width, typename T>
TD_INLINE Pack<T, width> load(const T* p) {
  return *reinterpret_cast<const Pack<T, width>*>(p);
}
template <typename T, int width>
TD_INLINE void store(T* p, const Pack<T, width>& values) {
  *reinterpret_cast<Pack<T, width>*>(p) = values;
}

// A body for `width` elements of contiguous memory at index i. It has run<width>(i), or
// run<width>(shared, i) if it has a type Shared.
template <typename Body, int width>
struct Packed {
  Body body;
  int64_t n;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    if ((i + 1) * width <= n) {
      body.template run<width>(i * width);
    } else {
      TD_UNROLL_BY(1)
      for (int64_t j = i * width; j < n; ++j) body.template run<1>(j);
    }
  }
};
template <shares Body, int width>
struct Packed<Body, width> {
  using Shared = typename Body::Shared;
  Body body;
  int64_t n;
  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    body.prepare(shared, thread, threads);
  }
  TD_HOST_DEVICE void operator()(const Shared& shared, int64_t i) const {
    if ((i + 1) * width <= n) {
      body.template run<width>(shared, i * width);
    } else {
      TD_UNROLL_BY(1)
      for (int64_t j = i * width; j < n; ++j) body.template run<1>(shared, j);
    }
  }
};

// Finds the body that index i among all bodies' indices belongs to, and makes i that body's index.
TD_HOST_DEVICE inline int body_of(const int64_t* end, int64_t& i) {
  int k = 0;
  while (i >= end[k]) ++k;
  i -= k == 0 ? 0 : end[k - 1];
  return k;
}

// Several bodies of one kind in one launch. end: the index behind each body's last one.
template <typename Body, int n>
struct Several {
  Body bodies[n];
  int64_t end[n];
  TD_HOST_DEVICE void operator()(int64_t i) const {
    const int k = body_of(end, i);
    bodies[k](i);
  }
};

// The same with a type Shared, which every body prepares in the same way.
template <shares Body, int n>
struct Several<Body, n> {
  using Shared = typename Body::Shared;
  Body bodies[n];
  int64_t end[n];
  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    bodies[0].prepare(shared, thread, threads);
  }
  TD_HOST_DEVICE void operator()(const Shared& shared, int64_t i) const {
    const int k = body_of(end, i);
    bodies[k](shared, i);
  }
};

inline bool is_aligned(const void* p, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// aligned: whether all pointers of the body allow packs of four.
template <typename Body>
Status for_each_packed(int64_t n, bool aligned, Stream stream, const Body& body) {
  constexpr int width = 4;
  if (aligned) return for_each((n + width - 1) / width, stream, Packed<Body, width>{body, n});
  return for_each(n, stream, Packed<Body, 1>{body, n});
}

} // namespace at::formats::cuda
