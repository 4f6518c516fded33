#include <ATen/FormatTensor.h>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatWrapper.h>
#include <ATen/Observation.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/Elementary.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/native/formats/stock/StockCodec.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <type_traits>

namespace at::formats {

using c10::ScalarType;

ScalarType dtype_number(const at::Tensor& t) {
  const FormatEntry* entry = entry_beneath(t);
  return entry ? c10::formats::scalar_type(*entry) : t.scalar_type();
}

// ---- making tensors ----

static at::Tensor on_storage(c10::Storage storage, const FormatEntry& entry, c10::IntArrayRef sizes,
                             c10::IntArrayRef strides, int64_t offset = 0) {
  auto impl = make_format_impl(std::move(storage), entry);
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

static at::Tensor empty_stock(c10::IntArrayRef sizes, c10::IntArrayRef strides, ScalarType type,
                              c10::Device device) {
  if (device.is_cpu()) return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, type));
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(type).device(device));
}

at::Tensor empty_strided_format(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                const FormatEntry& entry, c10::Device device) {
  if (!device.is_cpu()) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return format_alias(empty_stock(sizes, strides, entry.bits, device), entry);
  }
  at::detail::check_size_nonnegative(sizes);
  const auto bytes = static_cast<int64_t>(at::detail::computeStorageNbytes(
      sizes, strides, static_cast<size_t>(entry.format.itemsize())));
  return on_storage(
      c10::Storage(c10::Storage::use_byte_size_t{}, bytes, c10::GetCPUAllocator(), true), entry,
      sizes, strides);
}

at::Tensor format_without_memory(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                 const FormatEntry& entry, c10::Device device) {
  const size_t bytes = at::detail::computeStorageNbytes(
      sizes, strides, static_cast<size_t>(entry.format.itemsize()));
  return on_storage(c10::Storage(c10::Storage::use_byte_size_t{}, bytes,
                                 at::DataPtr{nullptr, device}, c10::GetAllocator(c10::kMeta), true),
                    entry, sizes, strides);
}

static c10::DimVector contiguous_strides(c10::IntArrayRef sizes, c10::MemoryFormat memory_format) {
  const bool last2d = memory_format == c10::MemoryFormat::ChannelsLast,
             last3d = memory_format == c10::MemoryFormat::ChannelsLast3d;
  TORCH_CHECK(!last2d || sizes.size() == 4, "required rank 4 tensor to use channels_last format");
  TORCH_CHECK(!last3d || sizes.size() == 5,
              "required rank 5 tensor to use channels_last_3d format");
  switch (memory_format) {
    case c10::MemoryFormat::ChannelsLast: {
      const auto s = c10::get_channels_last_strides_2d(sizes);
      return c10::DimVector(s.begin(), s.end());
    }
    case c10::MemoryFormat::ChannelsLast3d: {
      const auto s = c10::get_channels_last_strides_3d(sizes);
      return c10::DimVector(s.begin(), s.end());
    }
    default: {
      for (const int64_t size : sizes)
        TORCH_CHECK(size >= 0, "expected sizes of at least 0, but got ", sizes);
      const auto s = c10::contiguous_strides(sizes);
      return c10::DimVector(s.begin(), s.end());
    }
  }
}

at::Tensor empty_format(c10::IntArrayRef sizes, const FormatEntry& entry, c10::Device device,
                        std::optional<c10::MemoryFormat> mf) {
  const auto format = mf.value_or(c10::MemoryFormat::Contiguous);
  TORCH_CHECK(format != c10::MemoryFormat::Preserve,
              "expected a memory format other than preserve_format for new sizes");
  return empty_strided_format(sizes, contiguous_strides(sizes, format), entry, device);
}

at::Tensor empty_like_format(const at::Tensor& self, const FormatEntry& entry,
                             std::optional<c10::MemoryFormat> mf) {
  const auto format = mf.value_or(c10::MemoryFormat::Preserve);
  if (format != c10::MemoryFormat::Preserve)
    return empty_format(self.sizes(), entry, self.device(), format);
  if (self.is_non_overlapping_and_dense())
    return empty_strided_format(self.sizes(), self.strides(), entry, self.device());
  return empty_strided_format(self.sizes(), at::infer_dense_strides(self.sizes(), self.strides()),
                              entry, self.device());
}

// ---- views of the same memory by another dtype ----

at::Tensor stock_alias(const at::Tensor& t, ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_wrapper(t), "expected a tensor with its own memory, but got a wrapper of torch.",
      is_format_tensor(t) ? entry_of(t).name : c10::getDtypeNames(t.scalar_type()).first,
      ". Use the tensor within, for a DTensor x.to_local().");
  const auto key = c10::computeDispatchKey(type, c10::kStrided, t.device());
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(t.storage()), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(type));
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return alias;
}

at::Tensor format_alias(const at::Tensor& stock, const FormatEntry& entry) {
  return on_storage(stock.storage(), entry, stock.sizes(), stock.strides(), stock.storage_offset());
}

at::Tensor format_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                       int64_t offset) {
  // A view is an inference tensor if and only if its base is one, whatever mode the call runs in.
  std::optional<c10::InferenceMode> mode;
  if (self.is_inference() != c10::InferenceMode::is_enabled()) mode.emplace(self.is_inference());
  return on_storage(self.storage(), entry_of(self), sizes, strides, offset);
}

void expect_strided(std::optional<c10::Layout> layout) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !layout || *layout == c10::kStrided, "expected the strided layout, but got ", *layout,
      ": tensors of number formats have no sparse layouts. Convert to a stock dtype first.");
}

void expect_ordinary(const at::Tensor& self, ScalarType target) {
  const char* other = self.is_mkldnn() ? "mkldnn" : "quantized";
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_quantized() && !self.is_nested() && !self.is_mkldnn(),
                              "expected an ordinary tensor to convert to ",
                              c10::formats::format_entry(target).name, ", but got a ",
                              self.is_nested() ? "nested" : other,
                              " one. Dequantize, unbind or make it dense first.");
  expect_strided(self.layout());
}

// ---- conversion ----

// Elements per task: a conversion is a few cycles an element, so a task must have many of them.
static constexpr int64_t kGrain = 32768;

at::Tensor dense(const at::Tensor& stock) {
  return stock.is_non_overlapping_and_dense() ? stock : stock.clone(at::MemoryFormat::Preserve);
}

// Shows a conversion in profiles. Where nobody profiles, it is one test.
class InProfiles {
 public:
  explicit InProfiles(const char* name) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) {
      record_.emplace(std::move(*callbacks));
      record_->before(name);
    }
  }

 private:
  std::optional<at::RecordFunction> record_;
};

static void expect_codec(c10::Device device, const char* what) {
  if (!by_stock(device)) expect_kernels(device, what);
}

at::Tensor decoded(const at::Tensor& t, ScalarType compute) {
  expect_codec(t.device(), "decode");
  const InProfiles shown("formats::decode");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const FormatEntry& entry = entry_of(t);
  const bool as_it_is = on_host(t.device()) && !by_stock(t.device()) && !is_wrapper(t) &&
      t.is_non_overlapping_and_dense();
  const at::Tensor codes = as_it_is ? t : dense(bits_alias(t));
  if (by_stock(t.device())) return decode_by_stock(entry.format, codes, compute);
  at::Tensor out = empty_stock(codes.sizes(), codes.strides(), compute, t.device());
  if (t.device().is_meta()) return out;
  if (on_gpu(t.device())) {
    decode_on_gpu(entry.format, codes, out);
    return out;
  }
  const CpuKernels& k = kernels(t.device(), "decode");
  const char* in = static_cast<const char*>(codes.const_data_ptr());
  const int64_t width = entry.format.itemsize();
  if (compute == ScalarType::Float) {
    TORCH_INTERNAL_ASSERT(entry.format.fits_float() || entry.format.is_table());
    float* values = out.mutable_data_ptr<float>();
    at::parallel_for(0, codes.numel(), kGrain, [&](int64_t b, int64_t e) {
      k.decode(entry.format, in + b * width, values + b, e - b);
    });
  } else {
    double* values = out.mutable_data_ptr<double>();
    at::parallel_for(0, codes.numel(), kGrain, [&](int64_t b, int64_t e) {
      k.decode(entry.format, in + b * width, values + b, e - b);
    });
  }
  return out;
}

at::Tensor decoded(const at::Tensor& t) {
  return decoded(t, entry_of(t).compute);
}

// Converts stock values to one of the four types that the encoders take; every widening here is
// exact.
static at::Tensor encodable(const at::Tensor& stock) {
  switch (stock.scalar_type()) {
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Long:
    case ScalarType::UInt64: return stock;
    case ScalarType::Int:
    case ScalarType::UInt32: return stock.to(ScalarType::Long);
    case ScalarType::ComplexHalf:
    case ScalarType::ComplexFloat:
    case ScalarType::ComplexDouble:
      TORCH_WARN_ONCE("Casting complex values to a real number format discards the imaginary part");
      return at::_ops::_to_copy::call(stock, ScalarType::Double, {}, {}, {}, false, {});
    default: return stock.to(ScalarType::Float);
  }
}

// Integers of 2^53 and more are counted as the float64 next to them.
template <typename T>
static void count_codes(const Recorder& seen, const T* values, const char* codes, int64_t width,
                        int64_t n) {
  if constexpr (std::is_floating_point_v<T>) {
    seen.codes(values, codes, n);
  } else {
    double wide[kTile];
    for (int64_t first = 0; first < n; first += kTile) {
      const int64_t m = std::min(kTile, n - first);
      std::transform(values + first, values + first + m, wide,
                     [](T x) { return static_cast<double>(x); });
      seen.codes(wide, codes + first * width, m);
    }
  }
}

// The same for values that stock operators rounded. The counts are made on the CPU.
static void count_encoded(const at::Tensor& rounded, const at::Tensor& target,
                          const FormatEntry& entry) {
  if (!observing()) return;
  if (LastEncoded::current()) LastEncoded::current()->values = rounded;
  const Recorder seen = recorder(entry.format, target.const_data_ptr(), rounded.const_data_ptr());
  if (!seen) return;
  const at::Tensor stock = rounded.cpu(), bits = bits_alias(target).cpu();
  const auto* codes = static_cast<const char*>(bits.const_data_ptr());
  const int64_t width = entry.format.itemsize(), n = stock.numel();
  switch (stock.scalar_type()) {
    case ScalarType::Float:
      return count_codes(seen, stock.const_data_ptr<float>(), codes, width, n);
    case ScalarType::Double:
      return count_codes(seen, stock.const_data_ptr<double>(), codes, width, n);
    default: return count_codes(seen, stock.const_data_ptr<int64_t>(), codes, width, n);
  }
}

// target: a dense format tensor with the strides of `stock`.
static void encode_dense(const at::Tensor& stock, const at::Tensor& target,
                         const FormatEntry& entry) {
  if (stock.device().is_meta()) return;
  const InProfiles shown("formats::encode");
  const Format format = rounding_format(entry);
  const RandomWords words = next_words(format, {}, stock.device());
  if (by_stock(stock.device())) {
    at::Tensor bits = bits_alias(target);
    at::_ops::copy_::call(bits, encode_by_stock(format, stock, entry.bits, words), false);
    return count_encoded(stock, target, entry);
  }
  if (on_gpu(stock.device())) {
    encode_on_gpu(format, stock, target, words);
    if (observing() && LastEncoded::current()) LastEncoded::current()->values = stock;
    if (const Recorder seen =
            recorder(entry.format, target.const_data_ptr(), stock.const_data_ptr())) {
      count_codes_on_gpu(seen, stock, target.const_data_ptr());
    }
    return;
  }
  char* codes = static_cast<char*>(target.mutable_data_ptr());
  const CpuKernels& k = kernels(stock.device(), "encode");
  const int64_t width = entry.format.itemsize();
  const auto run = [&](auto kernel, const auto* values) {
    const Recorder seen = recorder(entry.format, codes, values);
    if (observing() && LastEncoded::current()) LastEncoded::current()->values = stock;
    at::parallel_for(0, stock.numel(), kGrain, [&](int64_t b, int64_t e) {
      kernel(format, values + b, codes + b * width, e - b,
             RandomWords{words.seed, static_cast<uint64_t>(b)});
      if (seen) count_codes(seen, values + b, codes + b * width, width, e - b);
    });
  };
  switch (stock.scalar_type()) {
    case ScalarType::Float: return run(k.on_float.encode, stock.const_data_ptr<float>());
    case ScalarType::Double: return run(k.on_double.encode, stock.const_data_ptr<double>());
    case ScalarType::Long: return run(k.encode_int64, stock.const_data_ptr<int64_t>());
    case ScalarType::UInt64: return run(k.encode_uint64, stock.const_data_ptr<uint64_t>());
    default: TORCH_INTERNAL_ASSERT(false, "encode: not an encodable type: ", stock.scalar_type());
  }
}

at::Tensor encoded(const at::Tensor& stock, const FormatEntry& entry) {
  expect_codec(stock.device(), "encode");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor values = dense(encodable(stock));
  at::Tensor out = empty_strided_format(values.sizes(), values.strides(), entry, stock.device());
  encode_dense(values, out, entry);
  return out;
}

std::vector<at::Tensor> decoded_together(at::TensorList ours) {
  const InProfiles shown("formats::decode");
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::vector<at::Tensor> codes, values;
  for (const at::Tensor& t : ours) {
    codes.push_back(dense(bits_alias(t)));
    values.push_back(
        empty_stock(codes.back().sizes(), codes.back().strides(), ScalarType::Float, t.device()));
  }
  decode_together_on_gpu(entry_of(ours[0]).format, codes, values);
  return values;
}

std::vector<at::Tensor> encoded_together(at::TensorList stock, const FormatEntry& entry) {
  const InProfiles shown("formats::encode");
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::vector<at::Tensor> values, made;
  for (const at::Tensor& t : stock) {
    TORCH_INTERNAL_ASSERT(t.scalar_type() == ScalarType::Float);
    values.push_back(dense(t));
    made.push_back(
        empty_strided_format(values.back().sizes(), values.back().strides(), entry, t.device()));
  }
  encode_together_on_gpu(rounding_format(entry), values, made);
  for (size_t i = 0; observing() && i < made.size(); ++i) {
    const Recorder seen =
        recorder(entry.format, made[i].const_data_ptr(), values[i].const_data_ptr());
    if (seen) count_codes_on_gpu(seen, values[i], made[i].const_data_ptr());
  }
  return made;
}

void encode_into(const at::Tensor& target, const at::Tensor& stock) {
  expect_codec(target.device(), "encode");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const FormatEntry& entry = entry_of(target);
  if (target.is_non_overlapping_and_dense() && target.sizes() == stock.sizes() &&
      target.strides() == stock.strides()) {
    encode_dense(encodable(stock), target, entry);
    return;
  }
  at::Tensor bits = bits_alias(target);
  at::_ops::copy_::call(bits, bits_alias(encoded(stock, entry)), false);
}

at::Tensor to_stock(const at::Tensor& t, ScalarType type) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const FormatEntry& entry = entry_of(t);
  // Tables are looked up as float32, whatever their compute type is.
  const bool looked_up =
      type == ScalarType::Float && entry.format.is_table() && !on_gpu(t.device());
  const at::Tensor values = looked_up ? decoded(t, type) : decoded(t);
  if (values.scalar_type() == type) return values;
  if (type == ScalarType::ComplexHalf)
    return at::_ops::_to_copy::call(to_stock(t, ScalarType::Half), type, {}, {}, {}, false, {});
  const bool wider =
      type == ScalarType::Double || type == ScalarType::Float || !c10::isFloatingType(type);
  if (entry.compute == ScalarType::Float || wider)
    return at::_ops::_to_copy::call(values, type, {}, {}, {}, false, {});
  // float64 values to a type narrower than float32: a stock cast passes through float32 and would
  // round twice.
  if (t.device().is_meta()) return empty_stock(values.sizes(), values.strides(), type, t.device());
  if (by_stock(t.device()))
    return at::_ops::_to_copy::call(narrow_to_odd_by_stock(values), type, {}, {}, {}, false, {});
  at::Tensor odd = empty_stock(values.sizes(), values.strides(), ScalarType::Float, t.device());
  if (on_gpu(t.device())) narrow_on_gpu(values, odd);
  else
    kernels(t.device(), "cast")
        .narrow_to_odd(values.const_data_ptr<double>(), odd.mutable_data_ptr<float>(),
                       values.numel());
  return at::_ops::_to_copy::call(odd, type, {}, {}, {}, false, {});
}

at::Tensor to_format(const at::Tensor& t, const FormatEntry& entry) {
  return encoded(decoded(t), entry);
}

at::Tensor encoded_number(const c10::Scalar& value, const FormatEntry& entry) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const HiddenFromModes hidden;
  const c10::impl::ExcludeDispatchKeyGuard unwrapped(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
  const c10::Scalar number = fill_number(value, entry);
  const Unobserved a_number;
  return encoded(
      at::scalar_tensor(number,
                        at::TensorOptions().dtype(value.isFloatingPoint() ? ScalarType::Double
                                                                          : ScalarType::Long)),
      entry);
}

uint64_t encode_scalar(const c10::Scalar& value, const FormatEntry& entry) {
  using namespace c10::formats;
  const Format format = rounding_format(entry);
  const RandomWords words = next_words(format);
  const uint64_t random = is_stochastic(format.rounding) ? random_word(words.seed.number, 0) : 0;
  if (value.isBoolean()) return encode(format, unpack(int64_t{value.toBool()}), random);
  if (value.isIntegral(false)) return encode(format, unpack(value.toLong()), random);
  return encode(format, unpack(fill_number(value.toDouble(), entry)), random);
}

bool zero_is_code_zero(const Format& format) {
  return !format.is_table() || c10::formats::encode(format, c10::formats::unpack(0.0), 0) == 0;
}

// ---- the meaning of a dtype argument ----

static thread_local bool explicit_dtype = false;

ExplicitDtypeGuard::ExplicitDtypeGuard() : previous_(explicit_dtype) {
  explicit_dtype = true;
}
ExplicitDtypeGuard::~ExplicitDtypeGuard() {
  explicit_dtype = previous_;
}
bool ExplicitDtypeGuard::active() {
  return explicit_dtype;
}

const FormatEntry* requested_format(std::optional<ScalarType> type, const FormatEntry& own) {
  if (!type) return &own;
  if (c10::formats::is_format_type(*type)) return &c10::formats::format_entry(*type);
  if (*type == own.container && !ExplicitDtypeGuard::active()) return &own;
  return nullptr;
}

} // namespace at::formats
