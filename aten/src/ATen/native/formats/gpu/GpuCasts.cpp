#include <ATen/native/formats/gpu/GpuCasts.h>

#include <ATen/native/formats/gpu/GpuKernels.h>

namespace at::formats {

using c10::ScalarType;

void decode_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& values) {
  const Gpu gpu(codes.device(), "decode");
  gpu.expect(format);
  const bool narrow = values.scalar_type() == ScalarType::Float;
  TORCH_INTERNAL_ASSERT(!narrow || format.fits_float());
  const auto run = [&](const auto& kernels, auto* out) {
    gpu.check(kernels.decode(format, codes.const_data_ptr(), out, codes.numel(), gpu.stream()));
  };
  if (narrow) run(gpu->on_float, values.mutable_data_ptr<float>());
  else run(gpu->on_double, values.mutable_data_ptr<double>());
}

void encode_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& codes,
                   const RandomWords& words) {
  const Gpu gpu(values.device(), "encode");
  gpu.expect(format);
  void* out = codes.mutable_data_ptr();
  const int64_t n = values.numel();
  switch (values.scalar_type()) {
    case ScalarType::Float:
      return gpu.check(gpu->on_float.encode(format, values.const_data_ptr<float>(), out, n, words,
                                            gpu.stream()));
    case ScalarType::Double:
      return gpu.check(gpu->on_double.encode(format, values.const_data_ptr<double>(), out, n, words,
                                             gpu.stream()));
    case ScalarType::Long:
      return gpu.check(
          gpu->encode_int64(format, values.const_data_ptr<int64_t>(), out, n, words, gpu.stream()));
    case ScalarType::UInt64:
      return gpu.check(gpu->encode_uint64(format, values.const_data_ptr<uint64_t>(), out, n, words,
                                          gpu.stream()));
    default: TORCH_INTERNAL_ASSERT(false, "encode: not an encodable type: ", values.scalar_type());
  }
}

template <typename Launch>
static void together(at::TensorList from, at::TensorList to, const Launch& launch) {
  for (size_t first = 0; first < from.size(); first += cuda::kMostCasts) {
    cuda::Cast casts[cuda::kMostCasts];
    int count = 0;
    for (size_t i = first; i < from.size() && count < cuda::kMostCasts; ++i) {
      casts[count++] = {from[i].const_data_ptr(), to[i].mutable_data_ptr(), from[i].numel()};
    }
    launch(casts, count);
  }
}

void decode_together_on_gpu(const Format& format, at::TensorList codes, at::TensorList values) {
  const Gpu gpu(codes[0].device(), "decode");
  gpu.expect(format);
  together(codes, values, [&](const cuda::Cast* casts, int count) {
    gpu.check(gpu->decode_floats(format, casts, count, gpu.stream()));
  });
}

void encode_together_on_gpu(const Format& format, at::TensorList values, at::TensorList codes) {
  const Gpu gpu(codes[0].device(), "encode");
  gpu.expect(format);
  together(values, codes, [&](const cuda::Cast* casts, int count) {
    gpu.check(gpu->encode_floats(format, casts, count, gpu.stream()));
  });
}

void narrow_on_gpu(const at::Tensor& values, const at::Tensor& results) {
  const Gpu gpu(values.device(), "cast");
  gpu.check(gpu->narrow_to_odd(values.const_data_ptr<double>(), results.mutable_data_ptr<float>(),
                               values.numel(), gpu.stream()));
}

void chop_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& results,
                 const RandomWords& words, double flip_prob, const Seed& flip_seed) {
  const Gpu gpu(values.device(), "chop");
  gpu.expect(format);
  const auto run = [&](const auto& kernels, const auto* in, auto* out) {
    gpu.check(
        kernels.chop(format, in, out, values.numel(), words, flip_prob, flip_seed, gpu.stream()));
  };
  if (values.scalar_type() == ScalarType::Float)
    run(gpu->on_float, values.const_data_ptr<float>(), results.mutable_data_ptr<float>());
  else run(gpu->on_double, values.const_data_ptr<double>(), results.mutable_data_ptr<double>());
}

void encode_with_row_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& row,
                            const at::Tensor& codes, const RandomWords& words) {
  const Gpu gpu(values.device(), "encode");
  gpu.expect(format);
  gpu.check(gpu->encode_with_row(format, values.const_data_ptr<float>(), row.const_data_ptr(),
                                 values.size(-1), codes.mutable_data_ptr(), values.numel(), words,
                                 gpu.stream()));
}

void gate_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& numbers,
                 double threshold, const at::Tensor& out) {
  const Gpu gpu(codes.device(), "threshold");
  gpu.expect(format);
  gpu.check(gpu->gate(format, codes.const_data_ptr(), numbers.const_data_ptr(), threshold,
                      out.mutable_data_ptr(), codes.numel(), gpu.stream()));
}

void look_up_on_gpu(const at::Tensor& table, const at::Tensor& codes, const at::Tensor& out) {
  const Gpu gpu(codes.device(), "look up");
  gpu.check(gpu->look_up(table.const_data_ptr(), codes.const_data_ptr(),
                         static_cast<int>(codes.itemsize()), out.mutable_data_ptr(), codes.numel(),
                         gpu.stream()));
}

void next_codes_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& from,
                       const at::Tensor& towards, const at::Tensor& out) {
  const Gpu gpu(codes.device(), "nextafter");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !format.is_table(),
      "nextafter: expected any format but a table of values on a GPU, but got a tensor of one. ",
      "Move it with .cpu() first.");
  gpu.expect(format);
  gpu.check(gpu->next_codes(format, codes.const_data_ptr(), from.const_data_ptr<double>(),
                            towards.const_data_ptr<double>(), out.mutable_data_ptr(), codes.numel(),
                            gpu.stream()));
}

} // namespace at::formats
