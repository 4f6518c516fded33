#include <ATen/native/formats/elementwise/BlockProgram.h>

#include <ATen/FormatRounding.h>
#include <ATen/Parallel.h>
#include <ATen/native/formats/elementwise/BlockArithmetic.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuPrograms.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/sqrt_ops.h>

#include <algorithm>
#include <optional>

namespace at::formats {

bool Program::writes(int r) const {
  return std::any_of(instructions.begin(), instructions.end(),
                     [r](const Instruction& i) { return i.to == r; });
}
bool Program::uses(int r) const {
  return std::any_of(instructions.begin(), instructions.end(), [r](const Instruction& i) {
    return i.to == r || i.a == r || (operands_of(i.what) > 1 && i.b == r) ||
        (operands_of(i.what) > 2 && i.c == r);
  });
}

namespace {

using at::Tensor;

// ---- by single operators ----

Tensor by_operator(const Instruction& i, const Tensor& a, const Tensor& b, const Tensor& c) {
  switch (i.what) {
    case Do::Negate: return at::_ops::neg::call(a);
    case Do::Copy: return a;
    case Do::Maximum: return at::_ops::maximum::call(a, b);
    case Do::AddNumber: return at::_ops::add_Scalar::call(a, i.number, 1);
    case Do::MultiplyNumber: return at::_ops::mul_Scalar::call(a, i.number);
    case Do::DivideNumber: return at::_ops::div_Scalar::call(a, i.number);
    case Do::AddScaled: return at::_ops::add_Tensor::call(a, b, i.number);
    case Do::Lerp: return at::_ops::lerp_Scalar::call(a, b, i.number);
    case Do::Addcmul: return at::_ops::addcmul::call(a, b, c, i.number);
    case Do::Addcdiv: return at::_ops::addcdiv::call(a, b, c, i.number);
    default: return at::_ops::sqrt::call(a);
  }
}

// As by_operator, but into a, which the instruction writes.
void in_place(const Instruction& i, Tensor& a, const Tensor& b, const Tensor& c) {
  switch (i.what) {
    case Do::AddNumber: at::_ops::add__Scalar::call(a, i.number, 1); return;
    case Do::MultiplyNumber: at::_ops::mul__Scalar::call(a, i.number); return;
    case Do::DivideNumber: at::_ops::div__Scalar::call(a, i.number); return;
    case Do::AddScaled: at::_ops::add__Tensor::call(a, b, i.number); return;
    case Do::Lerp: at::_ops::lerp__Scalar::call(a, b, i.number); return;
    case Do::Addcmul: at::_ops::addcmul_::call(a, b, c, i.number); return;
    case Do::Addcdiv: at::_ops::addcdiv_::call(a, b, c, i.number); return;
    case Do::Sqrt: at::_ops::sqrt_::call(a); return;
    default: at::_ops::copy_::call(a, by_operator(i, a, b, c), false);
  }
}

// Counts the roundings of an instruction's operator as the one-pass program would: by the memory of
// the instruction's register.
class SeenInstruction {
 public:
  explicit SeenInstruction(const Run& run, const Instruction& i) : now_(observed_thread()) {
    const auto memory = [&](int r) -> const void* {
      return r < kTensors && run.tensors[r].defined() ? run.tensors[r].unsafeGetTensorImpl()->data()
                                                      : nullptr;
    };
    now_.destination = memory(i.to);
    now_.updated = memory(0);
  }
  ~SeenInstruction() { now_.destination = now_.updated = nullptr; }
  SeenInstruction(const SeenInstruction&) = delete;
  SeenInstruction& operator=(const SeenInstruction&) = delete;

 private:
  ObservedThread& now_;
};

void run_by_operators(const Run& run) {
  Tensor registers[kRegisters];
  std::copy(std::begin(run.tensors), std::end(run.tensors), registers);
  for (const Instruction& i : run.program->instructions) {
    const Tensor &a = registers[i.a], &b = registers[i.b], &c = registers[i.c];
    std::optional<SeenInstruction> seen;
    if (observing()) seen.emplace(run, i);
    if (i.to == i.a) {
      in_place(i, registers[i.to], b, c);
    } else if (i.to < kTensors) {
      at::_ops::copy_::call(registers[i.to], by_operator(i, a, b, c), false);
    } else {
      registers[i.to] = by_operator(i, a, b, c);
    }
  }
}

// ---- in one pass ----

struct Region {
  const char *begin, *end;
};

// One run in memory order: its codes, and a seed for every instruction that rounds at random.
struct PassJob {
  const Run* run;
  const FormatEntry* entry;
  c10::Device device{c10::kCPU};
  char* data[kTensors];
  int64_t n;
  c10::SmallVector<uint64_t, 16> seeds;
  std::vector<Recorder> recorders; // by register, if the thread is observed
};

// Whether the run's tensors have one format and are dense and laid out alike in the device's
// memory. Also lists the regions that they occupy.
bool fits_one_pass(const Run& run, PassJob& job, std::vector<Region>& regions) {
  const Tensor* first = nullptr;
  for (int r = 0; r < kTensors; ++r) {
    const Tensor& t = run.tensors[r];
    if (!t.defined()) continue;
    if (!is_format_tensor(t) || !computes(t.device()) || by_stock(t.device()) ||
        !t.is_non_overlapping_and_dense())
      return false;
    if (!first) first = &t;
    const bool alike = t.device() == first->device() && t.sizes() == first->sizes() &&
        t.strides() == first->strides();
    if (!alike || &entry_of(t) != &entry_of(*first)) return false;
  }
  job.run = &run;
  job.entry = &entry_of(*first);
  job.n = first->numel();
  job.device = first->device();
  if (!rounding_format(*job.entry).arithmetic_in_double() ||
      c10::formats::is_logarithmic(job.entry->format))
    return false;
  const int64_t bytes = job.n * job.entry->format.itemsize();
  for (int r = 0; r < kTensors; ++r) {
    const Tensor& t = run.tensors[r];
    if (!t.defined() || job.n == 0) continue;
    // Tensors that are only read may share memory with copies until one of them is written.
    void* data = run.program->writes(r) ? t.unsafeGetTensorImpl()->mutable_data()
                                        : const_cast<void*>(t.unsafeGetTensorImpl()->data());
    job.data[r] = static_cast<char*>(data);
    regions.push_back({job.data[r], job.data[r] + bytes});
  }
  return true;
}

bool overlap(std::vector<Region>& regions) {
  std::sort(regions.begin(), regions.end(),
            [](const Region& x, const Region& y) { return x.begin < y.begin; });
  for (size_t i = 1; i < regions.size(); ++i) {
    if (regions[i].begin < regions[i - 1].end) return true;
  }
  return false;
}

constexpr int64_t kChunk = 16 * kProgramBlock; // elements of one job for one thread

template <typename T>
void run_chunk(const CompiledProgram& compiled, const Format& f, const PassJob& job, int64_t begin,
               int64_t end) {
  ProgramBlocks<T> blocks(compiled, f, job.recorders.empty() ? nullptr : job.recorders.data());
  const int width = f.itemsize();
  for (int64_t first = begin; first < end; first += kProgramBlock) {
    char* at[kTensors] = {};
    for (int r = 0; r < kTensors; ++r) {
      if (job.run->tensors[r].defined()) at[r] = job.data[r] + first * width;
    }
    blocks.run(at, std::min(kProgramBlock, end - first), first, job.seeds);
  }
}

void run_in_one_pass(std::vector<PassJob>& jobs) {
  // Programs are few: those with one format and one step count are the same object.
  std::vector<std::pair<const Program*, const FormatEntry*>> keys;
  std::vector<int64_t> elements;
  std::vector<size_t> of_job;
  for (const PassJob& job : jobs) {
    const std::pair<const Program*, const FormatEntry*> key{job.run->program, job.entry};
    const size_t at = std::find(keys.begin(), keys.end(), key) - keys.begin();
    if (at == keys.size()) {
      keys.push_back(key);
      elements.push_back(0);
    }
    // observed jobs use no tables, which lack exact results
    if (job.recorders.empty()) elements[at] += job.n;
    of_job.push_back(at);
  }
  const CpuKernels& cpu = kernels(c10::kCPU, "a block program"); // GPU tensors were handled before
  std::vector<CompiledProgram> compiled;
  for (size_t k = 0; k < keys.size(); ++k)
    compiled.emplace_back(cpu, *keys[k].first, rounding_format(*keys[k].second), elements[k]);
  struct Chunk {
    size_t job;
    int64_t begin, end;
  };
  std::vector<Chunk> chunks;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (int64_t begin = 0; begin < jobs[j].n; begin += kChunk)
      chunks.push_back({j, begin, std::min(begin + kChunk, jobs[j].n)});
  }
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk& chunk = chunks[i];
      const PassJob& job = jobs[chunk.job];
      const CompiledProgram& program = compiled[of_job[chunk.job]];
      if (program.format.fits_float())
        run_chunk<float>(program, program.format, job, chunk.begin, chunk.end);
      else run_chunk<double>(program, program.format, job, chunk.begin, chunk.end);
    }
  });
}

} // namespace

void run_programs(const std::vector<Run>& runs) {
  std::vector<PassJob> jobs(runs.size());
  std::vector<Region> regions;
  bool one_pass = true;
  for (size_t i = 0; i < runs.size() && one_pass; ++i)
    one_pass = fits_one_pass(runs[i], jobs[i], regions);
  if (!one_pass || overlap(regions)) {
    if (runs.size() == 1) return run_by_operators(runs[0]);
    for (const Run& run : runs) run_programs({run});
    return;
  }
  GpuPrograms on_device;
  std::erase_if(jobs, [&](const PassJob& job) {
    if (!on_gpu(job.device)) return false;
    if (!on_device.take(*job.run->program, *job.entry, job.device, job.data, job.n))
      run_by_operators(*job.run);
    return true;
  });
  on_device.launch();
  if (jobs.empty()) return;
  for (PassJob& job : jobs) {
    const Format f = rounding_format(*job.entry);
    for (int r = 0; observing() && observed_thread().observer && r < kRegisters; ++r) {
      const bool in_memory = r < kTensors && job.run->tensors[r].defined();
      job.recorders.push_back(
          recorder(job.entry->format, in_memory ? job.data[r] : nullptr, job.data[0]));
    }
    for (const Instruction& i : job.run->program->instructions) {
      job.seeds.push_back(rounds_nothing(i.what) ? 0 : next_words(f).seed.number);
    }
  }
  run_in_one_pass(jobs);
}

} // namespace at::formats
