// Moves values into, out of and between number formats: to, _to_copy, copy_, clone, fill_, item,
// and their autograd.
#include <ATen/FormatLibrary.h>
#include <ATen/FormatWrapper.h>
#include <ATen/StockKernel.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <ATen/native/formats/operators/casts/AutocastCasts.h>
#include <ATen/native/formats/operators/casts/WrapperCast.h>
#include <ATen/ops/_pin_memory_ops.h>
#include <ATen/ops/_to_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/is_pinned_ops.h>
#include <ATen/ops/record_stream_ops.h>
#include <ATen/ops/to_ops.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace at::formats {

// Reaches into the kernel that c10::SafeKernelFunction holds. That class only calls it boxed, which
// every stock cast would pay for, as it would for a second look into the dispatcher's tables. C++
// allows naming a private member in an explicit instantiation.
#if TORCH_DTYPES_SINCE(2, 11)
static const c10::KernelFunction& kernel_of(const c10::SafeKernelFunction& held);
template <c10::KernelFunction c10::SafeKernelFunction::* member>
struct KernelOf {
  friend const c10::KernelFunction& kernel_of(const c10::SafeKernelFunction& held) {
    return held.*member;
  }
};
template struct KernelOf<&c10::SafeKernelFunction::kernel_>;
#else
static const c10::KernelFunction& kernel_of(const c10::KernelFunction& held) {
  return held;
}
#endif

static WrapperCast wrapper_cast = nullptr;

void set_wrapper_cast(WrapperCast cast) {
  wrapper_cast = cast;
}

namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using std::optional;

at::Tensor with_memory_format(at::Tensor t, optional<MemoryFormat> mf) {
  return mf && *mf != MemoryFormat::Preserve ? t.contiguous(*mf) : t;
}

// Whether the device is the tensor's own. A device without an index is the current one of its type.
bool stays(const at::Tensor& t, optional<Device> device) {
  if (!device || *device == t.device()) return true;
  if (device->type() != t.device().type() || device->has_index()) return false;
  return !t.device().has_index() ||
      c10::impl::VirtualGuardImpl(device->type()).getDevice() == t.device();
}

at::Tensor to_device(const at::Tensor& t, optional<Device> device, bool non_blocking) {
  if (stays(t, device)) return t;
  const at::Tensor bits =
      at::_ops::_to_copy::call(bits_alias(t), {}, {}, device, {}, non_blocking, {});
  return format_alias(bits, entry_of(t));
}

// Raises for wrapper subclasses without memory (torchao's quantised weights, ...): only their class
// knows the tensors within.
void expect_memory(const at::Tensor& t, const char* what) {
  const bool none = t.numel() != 0 && !t.device().is_meta() && t.has_storage() &&
      !t.storage().data() && !is_format_tensor(t);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !none, what,
      ": expected a tensor with its own memory to convert to or from a number format, but got a "
      "wrapper subclass of ",
      c10::getDtypeNames(t.scalar_type()).first,
      ". Convert the tensor within (a quantised weight before it is quantised).");
}

// Casts a wrapper by its class, if that casts the tensors within (DTensor); else returns an
// undefined tensor.
at::Tensor cast_within(const at::Tensor& self, ScalarType dtype) {
  return is_wrapper(self) && wrapper_cast ? wrapper_cast(self, dtype) : at::Tensor();
}

// ---- _to_copy ----

at::Tensor clone_kernel(const at::Tensor& self, optional<MemoryFormat> mf) {
  at::Tensor out = empty_like_format(self, entry_of(self), mf);
  at::Tensor bits = bits_alias(out);
  at::_ops::copy_::call(bits, bits_alias(self), false);
  return out;
}

at::Tensor pin_memory_kernel(const at::Tensor& self, optional<Device> device) {
  return format_alias(at::_ops::_pin_memory::call(bits_alias(self), device), entry_of(self));
}

bool is_pinned_kernel(const at::Tensor& self, optional<Device> device) {
  return at::_ops::is_pinned::call(bits_alias(self), device);
}

void record_stream_kernel(at::Tensor& self, c10::Stream stream) {
  at::Tensor bits = bits_alias(self); // a stream uses the memory
  at::_ops::record_stream::call(bits, stream);
}

// Whether autocast makes this call. It casts an operator's operands with its own key switched off.
// If the key is off within a block, the call may also come from an inner block without autocast, as
// a checkpoint recomputes in one. This package's own casts use ExplicitDtypeGuard to be told apart.
bool autocast_asks(ScalarType target, Device device) {
  const auto key =
      device.is_cuda() ? c10::DispatchKey::AutocastCUDA : c10::DispatchKey::AutocastCPU;
  if (ExplicitDtypeGuard::active() || !c10::impl::tls_is_dispatch_key_excluded(key)) return false;
  return in_autocast_block() &&
      (target == ScalarType::Float ||
       target == at::autocast::get_autocast_dtype(autocast_device(device)));
}

// For stock tensors: handles only casts to a format dtype.
at::Tensor to_copy_stock(const at::Tensor& self, optional<ScalarType> dtype,
                         optional<Layout> layout, optional<Device> device, optional<bool> pin,
                         bool non_blocking, optional<MemoryFormat> mf) {
  if (!dtype || !c10::formats::is_format_type(*dtype)) {
    return at::compositeexplicitautograd::_to_copy(self, dtype, layout, device, pin, non_blocking,
                                                   mf);
  }
  expect_strided(layout);
  expect_ordinary(self, *dtype);
  if (at::Tensor wrapper = cast_within(self, *dtype); wrapper.defined()) return wrapper;
  expect_memory(self, "to");
  const auto cast = [&] {
    return with_memory_format(
        to_device(encoded(self, c10::formats::format_entry(*dtype)), device, non_blocking), mf);
  };
  // In inference mode no autograd kernel has run before this one.
  return c10::InferenceMode::is_enabled() && autocast_asks(*dtype, self.device())
      ? kept_cast(self, *dtype, cast)
      : cast();
}

at::Tensor to_copy(const at::Tensor& self, optional<ScalarType> dtype, optional<Layout> layout,
                   optional<Device> device, optional<bool> pin, bool non_blocking,
                   optional<MemoryFormat> mf) {
  // Inside PyTorch's own tree the requested dtype takes part in choosing the kernel, as the tensor
  // does.
  if (!is_format_tensor(self))
    return to_copy_stock(self, dtype, layout, device, pin, non_blocking, mf);
  const at::AutoDispatchBelowADInplaceOrView guard;
  expect_strided(layout);
  const FormatEntry& own = entry_of(self);
  const FormatEntry* target = requested_format(dtype, own);
  if (at::Tensor wrapper = cast_within(self, target ? c10::formats::scalar_type(*target) : *dtype);
      wrapper.defined())
    return wrapper;
  if (!target) {
    const at::Tensor converted = to_stock(self, *dtype);
    // The converted tensor is new, so it need not be copied.
    const bool done = stays(self, device) && !pin.value_or(false) &&
        mf.value_or(MemoryFormat::Preserve) == MemoryFormat::Preserve;
    return done ? converted
                : at::_ops::_to_copy::call(converted, {}, layout, device, pin, non_blocking, mf);
  }
  const at::Tensor moved = to_device(self, device, non_blocking);
  if (target != &own) return with_memory_format(to_format(moved, *target), mf);
  return moved.is_same(self) ? clone_kernel(self, mf) : with_memory_format(moved, mf);
}

// ---- to: PyTorch's composite kernel compares dtypes by the container ----

// A block with a format dtype casts all dtypes whose values float32 has, as a block with bfloat16
// does; wider ones stay, as float64 does there. A block with a stock dtype leaves format tensors
// alone.
bool autocast_may_cast(const FormatEntry& own, Device device) {
  return own.format.fits_float() &&
      c10::formats::is_format_type(at::autocast::get_autocast_dtype(autocast_device(device)));
}

at::Tensor to(const at::Tensor& self, optional<ScalarType> dtype, optional<Layout> layout,
              optional<Device> device, optional<bool> pin, bool non_blocking, bool copy,
              optional<MemoryFormat> mf) {
  const FormatEntry* own = entry_beneath(self);
  if (!own) {
    const ScalarType target = dtype.value_or(self.scalar_type());
    const bool same = target == self.scalar_type() && (!device || *device == self.device());
    const bool keeps_layout =
        !mf || *mf == MemoryFormat::Preserve || self.suggest_memory_format() == *mf;
    return same && keeps_layout && !copy
        ? self
        : at::_ops::_to_copy::call(self, dtype, layout, device, pin, non_blocking, mf);
  }
  const FormatEntry* target = requested_format(dtype, *own);
  // Inside PyTorch's tree a format dtype is its own container, and autocast knows which tensors it
  // may cast (an edit of autocast_mode.cpp).
  const bool beside_wheel = own->container != c10::formats::scalar_type(*own);
  if (dtype && beside_wheel && autocast_asks(*dtype, self.device()) &&
      !autocast_may_cast(*own, self.device()))
    return self;
  const bool keeps_layout =
      !mf || *mf == MemoryFormat::Preserve || self.suggest_memory_format() == *mf;
  if (target == own && stays(self, device) && keeps_layout && !copy) return self;
  std::optional<HiddenFromModes> hidden;
  if (target) hidden.emplace();
  return at::_ops::_to_copy::call(
      self, target ? optional<ScalarType>(c10::formats::scalar_type(*target)) : dtype, layout,
      device, pin, non_blocking, mf);
}

// Stock tensors with autograd: CastBackward records a cast to a format dtype, from any function and
// at any level of torch.func. All other calls take the stock formula, which is the same at every
// autograd key.
at::Tensor to_copy_autograd_stock(c10::DispatchKeySet keys, const at::Tensor& self,
                                  optional<ScalarType> dtype, optional<Layout> layout,
                                  optional<Device> device, optional<bool> pin, bool non_blocking,
                                  optional<MemoryFormat> mf) {
  if (dtype && c10::formats::is_format_type(*dtype)) {
    const auto cast = [&] {
      return to_copy_autograd(self, dtype, layout, device, pin, non_blocking, mf);
    };
    return autocast_asks(*dtype, self.device()) ? kept_cast(self, *dtype, cast) : cast();
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
  // Outlives exit.
  static const auto& stock = *new StockKernel(stock_kernel(op, c10::DispatchKey::AutogradOther));
  return kernel_of(stock)
      .call<at::Tensor, const at::Tensor&, optional<ScalarType>, optional<Layout>, optional<Device>,
            optional<bool>, bool, optional<MemoryFormat>>(op, keys, self, dtype, layout, device,
                                                          pin, non_blocking, mf);
}

at::Tensor to_dtype_layout(const at::Tensor& self, optional<ScalarType> dtype,
                           optional<Layout> layout, optional<Device> device, optional<bool> pin,
                           bool non_blocking, bool copy, optional<MemoryFormat> mf) {
  return to(self, dtype, layout, device, pin, non_blocking, copy, mf);
}
at::Tensor to_device_dtype(const at::Tensor& self, Device device, ScalarType dtype,
                           bool non_blocking, bool copy, optional<MemoryFormat> mf) {
  return to(self, dtype, {}, device, {}, non_blocking, copy, mf);
}
at::Tensor to_dtype(const at::Tensor& self, ScalarType dtype, bool non_blocking, bool copy,
                    optional<MemoryFormat> mf) {
  return to(self, dtype, {}, {}, {}, non_blocking, copy, mf);
}
at::Tensor to_other(const at::Tensor& self, const at::Tensor& other, bool non_blocking, bool copy,
                    optional<MemoryFormat> mf) {
  const ExplicitDtypeGuard explicit_dtype;
  return to(self, dtype_number(other), other.layout(), other.device(), {}, non_blocking, copy, mf);
}
at::Tensor type_as(const at::Tensor& self, const at::Tensor& other) {
  return to_other(self, other, false, false, {});
}

// torch._cast_Float and its kin. Stock code writes them as to(Float); here the name means the
// container itself.
template <ScalarType type>
at::Tensor cast_named(const at::Tensor& self, bool non_blocking) {
  const ExplicitDtypeGuard explicit_dtype;
  return to(self, type, {}, {}, {}, non_blocking, false, {});
}

// ---- copy_ ----

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  expect_memory(self, "copy_");
  expect_memory(source, "copy_");
  if (!is_format_tensor(self)) {
    const at::Tensor values =
        to_stock(source,
                 source.device() == self.device() && c10::isFloatingType(self.scalar_type())
                     ? self.scalar_type()
                     : entry_of(source).compute);
    return at::_ops::copy_::call(self, values, non_blocking);
  }
  const FormatEntry& entry = entry_of(self);
  if (is_format_tensor(source)) {
    at::Tensor bits = bits_alias(self);
    const at::Tensor same = &entry_of(source) == &entry ? source : to_format(source, entry);
    at::_ops::copy_::call(bits, bits_alias(same), non_blocking);
  } else if (self.device() == source.device()) {
    encode_into(self, source);
  } else {
    at::Tensor bits = bits_alias(self);
    at::_ops::copy_::call(bits, bits_alias(encoded(source, entry)), non_blocking);
  }
  return self;
}

// Casts the source to self's dtype differentiably; then the stock formula records a copy within one
// dtype.
at::Tensor& copy_autograd(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& source,
                          bool non_blocking) {
  if (dtype_number(self) == dtype_number(source)) {
    const auto rest =
        (keys & c10::after_autograd_keyset) | c10::DispatchKeySet(c10::DispatchKey::AutogradOther);
    return at::_ops::copy_::redispatch(rest, self, source, non_blocking);
  }
  const ExplicitDtypeGuard explicit_dtype;
  const auto cast = [&] {
    const HiddenFromModes hidden;
    return at::_ops::to_dtype::call(source, dtype_number(self), non_blocking, false, {});
  };
  return at::_ops::copy_::call(self, cast(), non_blocking);
}

// ---- scalars ----

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "item: expected one element, but got ", self.numel());
  const at::Tensor value = decoded(self, ScalarType::Double);
  // item() waits for the GPU.
  return value.device().is_cpu() ? c10::Scalar(value.const_data_ptr<double>()[0]) : value.item();
}

// The functional form of copy_ for torch.func.functionalize. The result has self's dtype, not a
// promoted one.
at::Tensor copy_functional(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  at::Tensor result = self.clone();
  return result.copy_(source, non_blocking);
}

at::Tensor& fill_scalar(at::Tensor& self, const c10::Scalar& value) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const FormatEntry& entry = entry_of(self);
  const uint64_t code = encode_scalar(value, entry);
  at::Tensor bits = bits_alias(self);
  // As a signed number of the integer type's width.
  const int unused = 64 - 8 * entry.format.itemsize();
  const int64_t as_integer = entry.bits == ScalarType::Byte
      ? static_cast<int64_t>(code)
      : static_cast<int64_t>(code << unused) >> unused;
  at::_ops::fill__Scalar::call(bits, as_integer);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "fill_: expected a tensor without dimensions as value, but got one with ",
              value.dim());
  if (self.is_meta()) return self;
  if (!is_format_tensor(self)) return self.fill_(value.item());
  // Warns of the dropped imaginary part, as PyTorch does.
  if (value.is_complex()) return at::_ops::copy_::call(self, value, false);
  return fill_scalar(self, value.item());
}

// PyTorch's dequantize() of a tensor that is not quantised.
at::Tensor dequantize(const at::Tensor& self) {
  return to_stock(self, ScalarType::Float);
}

at::Tensor& zero_(at::Tensor& self) {
  return fill_scalar(self, int64_t{0});
}

} // namespace

static void register_casts(torch::Library& m) {
  m.impl("to.dtype_layout", &to_dtype_layout);
  m.impl("to.device", &to_device_dtype);
  m.impl("to.dtype", &to_dtype);
  m.impl("to.other", &to_other);
  m.impl("type_as", &type_as);
  m.impl("_cast_Byte", &cast_named<ScalarType::Byte>);
  m.impl("_cast_Char", &cast_named<ScalarType::Char>);
  m.impl("_cast_Double", &cast_named<ScalarType::Double>);
  m.impl("_cast_Float", &cast_named<ScalarType::Float>);
  m.impl("_cast_Half", &cast_named<ScalarType::Half>);
  m.impl("_cast_Int", &cast_named<ScalarType::Int>);
  m.impl("_cast_Long", &cast_named<ScalarType::Long>);
  m.impl("_cast_Short", &cast_named<ScalarType::Short>);
}
TD_REGISTER_COMPOSITE(register_casts)

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("clone", &clone_kernel);
  m.impl("_pin_memory", &pin_memory_kernel);
  m.impl("is_pinned", &is_pinned_kernel);
  m.impl("record_stream", &record_stream_kernel);
  m.impl("_to_copy", &to_copy);
  m.impl("copy_", &copy_);
  m.impl("copy", &copy_functional);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("fill_.Scalar", &fill_scalar);
  m.impl("fill_.Tensor", &fill_tensor);
  m.impl("zero_", &zero_);
  m.impl("dequantize.self", &dequantize);
}

static void register_recorded_copies(torch::Library& m) {
  m.impl("_to_copy", &to_copy_autograd);
  m.impl("copy_", TORCH_FN(copy_autograd));
}
TD_REGISTER_AUTOGRAD(register_recorded_copies)

// For stock tensors on the devices that format tensors may be on; for nested tensors, to raise.
#define TD_STOCK_CAST(AUTOGRAD)                           \
  TORCH_LIBRARY_IMPL(aten, AUTOGRAD, m) {                 \
    m.impl("_to_copy", TORCH_FN(to_copy_autograd_stock)); \
  }
TD_STOCK_CAST(AutogradCPU)
TD_STOCK_CAST(AutogradCUDA)
TD_STOCK_CAST(AutogradMeta)
TD_STOCK_CAST(AutogradMPS)
TD_STOCK_CAST(AutogradXPU)
TD_STOCK_CAST(AutogradPrivateUse1)
TD_STOCK_CAST(AutogradNestedTensor)
#undef TD_STOCK_CAST

// The same below autograd; the keys after the first six are there to raise.
#define TD_STOCK_COPY(KEY)              \
  TORCH_LIBRARY_IMPL(aten, KEY, m) {    \
    m.impl("_to_copy", &to_copy_stock); \
  }
TD_STOCK_COPY(CPU)
TD_STOCK_COPY(CUDA)
TD_STOCK_COPY(Meta)
TD_STOCK_COPY(MPS)
TD_STOCK_COPY(XPU)
TD_STOCK_COPY(PrivateUse1)
TD_STOCK_COPY(SparseCPU)
TD_STOCK_COPY(SparseCsrCPU)
TD_STOCK_COPY(QuantizedCPU)
TD_STOCK_COPY(MkldnnCPU)
#undef TD_STOCK_COPY

} // namespace at::formats
