// Views: the same codes with other sizes and strides. Operators that make views by as_strided need
// no kernel here. Those in this file would otherwise build a plain TensorImpl, which loses the
// format.
#include <ATen/FormatLibrary.h>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/expand_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/set_ops.h>
#include <ATen/ops/squeeze_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/t_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/transpose_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/unsafe_split_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/unsafe_split_with_sizes_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/unsqueeze_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/view_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/view_ops.h>
#include <c10/core/InferenceMode.h>

#include <limits>

namespace at::formats {
namespace {

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  const int64_t start = offset ? offset->guard_int(__FILE__, __LINE__) : self.storage_offset();
  TORCH_CHECK(sizes.size() == strides.size(),
              "as_strided: expected as many strides as sizes, but got sizes ", sizes,
              " and strides ", strides);
  TORCH_CHECK(start >= 0, "as_strided: expected a storage offset of at least 0, but got ", start);
  for (const int64_t s : strides)
    TORCH_CHECK(s >= 0, "as_strided: expected strides of at least 0, but got ", strides);
  for (const int64_t s : sizes)
    TORCH_CHECK(s >= 0, "as_strided: expected sizes of at least 0, but got ", sizes);
  at::native::checkInBoundsForStorage(sizes, c10::IntArrayRef(strides), start, self.dtype(),
                                      self.storage());
  return format_view(self, sizes, strides, start);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const int64_t dim = at::maybe_wrap_dim(dimension, self.dim(), /*wrap_scalar=*/true);
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(size >= 0 && size <= length, "unfold: expected a size from 0 to ", length,
              ", but got ", size);
  TORCH_CHECK(step > 0, "unfold: expected a step of at least 1, but got ", step);
  c10::DimVector sizes(self.sizes().begin(), self.sizes().end()),
      strides(self.strides().begin(), self.strides().end());
  sizes.push_back(size);
  strides.push_back(self.dim() == 0 ? 1 : self.stride(dim));
  if (self.dim() > 0) {
    sizes[dim] = (length - size) / step + 1;
    strides[dim] = step * self.stride(dim);
  }
  return format_view(self, sizes, strides, self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride) {
  return format_view(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                     self.storage_offset());
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  const auto inferred = at::infer_size_dv(C10_AS_INTARRAYREF_SLOW(size), self.numel());
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(strides.has_value(),
              "view: expected a size that fits the strides of the tensor, but got size ", inferred,
              " for sizes ", self.sizes(), " and strides ", self.strides(),
              ". Use .reshape(...) instead.");
  return format_view(self, inferred, *strides, self.storage_offset());
}

at::Tensor alias(const at::Tensor& self) {
  return format_view(self, self.sizes(), self.strides(), self.storage_offset());
}

// Makes a result an inference tensor if and only if base is one, whatever mode the call runs in.
at::Tensor like_base(const at::Tensor& base, at::Tensor made) {
  if (made.is_inference() == base.is_inference()) return made;
  const c10::InferenceMode mode(base.is_inference());
  return is_format_tensor(made) ? format_alias(bits_alias(made), entry_of(made))
                                : stock_alias(made, made.scalar_type());
}

// Reinterprets memory: t.view(torch.int16) shows the codes. A view as another format, or as a stock
// type, reads the same memory anew.
at::Tensor view_dtype(const at::Tensor& self, c10::ScalarType type) {
  if (!c10::formats::is_format_type(type)) {
    const auto& own = entry_of(self);
    if (type == own.bits) return like_base(self, bits_alias(self));
    try {
      return like_base(self, at::_ops::view_dtype::call(bits_alias(self), type));
    } catch (c10::Error& error) {
      error.add_context(
          c10::str(c10::toString(own.bits), " stands for the codes of torch.", own.name));
      throw;
    }
  }
  const auto& entry = c10::formats::format_entry(type);
  const at::Tensor bits = bits_alias(self);
  return like_base(
      self,
      format_alias(
          bits.scalar_type() == entry.bits ? bits : at::_ops::view_dtype::call(bits, entry.bits),
          entry));
}

// Fills elements that a grown storage did not have, as torch.use_deterministic_algorithms requires
// for uninitialised memory.
void fill_new_elements(const at::Tensor& self, int64_t bytes_before) {
  const int64_t width = self.dtype().itemsize(), had = bytes_before / width,
                has = static_cast<int64_t>(self.storage().nbytes()) / width;
  if (has <= had) return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor added = format_view(self, {has - had}, {1}, had);
  at::_ops::fill__Scalar::call(added, std::numeric_limits<double>::quiet_NaN());
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<c10::MemoryFormat> memory_format) {
  const auto before = static_cast<int64_t>(self.storage().nbytes());
  if (self.device().is_cpu()) {
    at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), C10_AS_INTARRAYREF_SLOW(size),
                                 std::nullopt);
    if (memory_format) self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  } else { // by its codes, in the same storage
    const at::Tensor bits = bits_alias(self);
    at::_ops::resize_::call(bits, size, memory_format);
    self.unsafeGetTensorImpl()->set_sizes_and_strides(bits.sizes(), bits.strides());
  }
  const auto& context = at::globalContext();
  const bool fills = context.deterministicAlgorithms() &&
      context.deterministicFillUninitializedMemory() && !self.is_meta();
  if (fills) fill_new_elements(self, before);
  return self;
}

// As PyTorch's: copies sizes and, if a memory format is given, strides.
const at::Tensor& resize_as_(const at::Tensor& self, const at::Tensor& like,
                             std::optional<c10::MemoryFormat> memory_format) {
  at::_ops::resize_::call(self, like.sym_sizes(), {});
  if (memory_format) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format == c10::MemoryFormat::Preserve
                                                          ? like.suggest_memory_format()
                                                          : *memory_format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset,
                        c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto given = C10_AS_INTARRAYREF_SLOW(stride);
  const int64_t start = offset.guard_int(__FILE__, __LINE__);
  const auto strides = given.empty() && !sizes.empty() ? c10::contiguous_strides(sizes)
                                                       : c10::DimVector(given.begin(), given.end());
  TORCH_CHECK(start >= 0, "set_: expected a storage offset of at least 0, but got ", start);
  TORCH_CHECK(sizes.size() == strides.size(), "set_: expected as many strides as sizes, but got ",
              strides.size(), " and ", sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK(sizes[i] >= 0 && strides[i] >= 0,
                "set_: expected sizes and strides of at least 0, but got ", sizes, " and ",
                c10::IntArrayRef(strides));
  }
  // As PyTorch's: a storage that is too small grows, or raises if its memory belongs to something
  // else. The tensor is unchanged then.
  const size_t needed = at::detail::computeStorageNbytes(sizes, strides, self.dtype().itemsize(),
                                                         static_cast<size_t>(start));
  const bool empty = c10::multiply_integers(sizes) == 0;
  if (!empty && needed > source.nbytes()) {
    if (self.is_cuda()) { // as the codes' storage, which is the same
      at::Tensor bits = bits_alias(self);
      at::_ops::set__source_Storage_storage_offset::call(
          bits, source, start, c10::fromIntArrayRefSlow(sizes), c10::fromIntArrayRefSlow(strides));
    } else {
      at::native::resize_bytes_nocuda(source, needed);
    }
  }
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, start);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  TORCH_CHECK_TYPE(
      is_format_tensor(self) && is_format_tensor(source) && &entry_of(self) == &entry_of(source),
      "set_: expected two tensors of one number format, but got two dtypes");
  return set_storage(self, source.storage(), source.storage_offset(),
                     c10::fromIntArrayRefSlow(source.sizes()),
                     c10::fromIntArrayRefSlow(source.strides()));
}

at::Tensor& set_empty(at::Tensor& self) {
  return set_storage(self, empty_format({0}, entry_of(self), self.device()).storage(), 0,
                     {c10::SymInt(0)}, {c10::SymInt(1)});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
      self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
      self.strides() == other.strides();
}

// ---- unsafe_split: views that neither autograd nor their schema knows as views ----

std::vector<at::Tensor> unsafe_split(const at::Tensor& self, c10::SymInt size, int64_t dim) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::compositeexplicitautograd::unsafe_split_symint(self, std::move(size), dim);
}

std::vector<at::Tensor> unsafe_split_with_sizes(const at::Tensor& self, c10::SymIntArrayRef sizes,
                                                int64_t dim) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::compositeexplicitautograd::unsafe_split_with_sizes_symint(self, sizes, dim);
}

// The boxed kernel would view the decoded values.
at::Tensor view_copy_dtype(const at::Tensor& self, c10::ScalarType type) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::_ops::view_dtype::call(self, type).clone();
}

// For views without elements the stock derivative makes zeros of the container's dtype. These use
// other views, whose derivatives keep the format.
at::Tensor as_strided_recorded(c10::DispatchKeySet keys, const at::Tensor& self,
                               c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                               std::optional<c10::SymInt> offset) {
  const bool empty =
      std::any_of(sizes.begin(), sizes.end(), [](const c10::SymInt& size) { return size == 0; });
  if (empty && entry_beneath(self) && self.requires_grad() && at::GradMode::is_enabled()) {
    // Raises for invalid arguments.
    at::_ops::as_strided::call(self.detach(), sizes, strides, offset);
    return (self.dim() == 0 ? self.unsqueeze(0) : self).narrow(0, 0, 0).view_symint(sizes);
  }
  const auto stock =
      (keys & c10::after_autograd_keyset) | c10::DispatchKeySet(c10::DispatchKey::AutogradOther);
  return at::_ops::as_strided::redispatch(stock, self, sizes, strides, offset);
}

// ---- views in place: the boxed kernel would write the rearranged codes to shared memory ----

const at::Tensor& as_strided_in_place(const at::Tensor& self, c10::SymIntArrayRef sizes,
                                      c10::SymIntArrayRef strides,
                                      std::optional<c10::SymInt> offset) {
  const at::Tensor checked = at::_ops::as_strided::call(self.detach(), sizes, strides, offset);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(checked.sizes(), checked.strides(),
                                                    checked.storage_offset());
  return self;
}

void register_views_in_place(torch::Library& m) {
  namespace stock = at::compositeexplicitautograd;
  m.impl("as_strided_", &as_strided_in_place);
  m.impl("transpose_", &stock::transpose_); // calls as_strided_, as all of these do
  m.impl("t_", &stock::t_);
  m.impl("unsqueeze_", &stock::unsqueeze_);
  m.impl("squeeze_", static_cast<at::Tensor& (*)(at::Tensor&)>(&stock::squeeze_));
  m.impl("squeeze_.dim", static_cast<at::Tensor& (*)(at::Tensor&, int64_t)>(&stock::squeeze_));
  m.impl("squeeze_.dims",
         static_cast<at::Tensor& (*)(at::Tensor&, at::IntArrayRef)>(&stock::squeeze_));
}

// ---- Tensor.data = ...: between format and stock dtypes, the property's own setter is used
// (torch/csrc/formats/tensor/TensorProperties.cpp) ----

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.device() == from.device() && self.layout() == from.layout();
}

void set_data(at::Tensor& self, const at::Tensor& data) {
  TORCH_CHECK(
      (entry_beneath(self) == nullptr) == (entry_beneath(data) == nullptr),
      "set_data: expected a format tensor as new data of a format tensor, and a stock tensor "
      "for a stock one, but got the other. Assign to x.data instead.");
  self.set_data(data);
}

} // namespace

// The stock kernel, with another error: its own names the container.
static at::Tensor expand(const at::Tensor& self, c10::SymIntArrayRef size, bool implicit) {
  TORCH_CHECK(static_cast<int64_t>(size.size()) >= self.dim(),
              "expand: expected at least as many sizes as the tensor of torch.",
              entry_of(self).name, " has dimensions, ", self.dim(), ", but got ", size);
  return at::compositeexplicitautograd::expand_symint(self, size, implicit);
}

// view.dtype of a stock tensor: to a format dtype it wraps the same memory; all else takes the
// stock kernel.
static std::string kind_of(const at::Tensor& self) {
  if (self.is_nested()) return "nested";
  return self.is_quantized() ? "quantised" : c10::str(self.layout());
}

static at::Tensor view_dtype_stock(const at::Tensor& self, c10::ScalarType type) {
  if (!c10::formats::is_format_type(type)) return at::compositeexplicitautograd::view(self, type);
  TORCH_CHECK_NOT_IMPLEMENTED(
      self.layout() == c10::kStrided && !self.is_quantized() && !self.is_nested(),
      "expected a dense tensor to view as ", c10::formats::format_entry(type).name, ", but got a ",
      kind_of(self), " one. Unbind, dequantize or make it dense first.");
  const auto& entry = c10::formats::format_entry(type);
  const at::Tensor bits = self.scalar_type() == entry.bits
      ? self
      : at::compositeexplicitautograd::view(self, entry.bits);
  return like_base(self, format_alias(bits, entry));
}

// At every key that a stock tensor may have: the stock kernel divides by the size of a dtype that
// it does not know.
#define TD_VIEW_DTYPE(KEY)                   \
  TORCH_LIBRARY_IMPL(aten, KEY, m) {         \
    m.impl("view.dtype", &view_dtype_stock); \
  }
TD_VIEW_DTYPE(CPU)
TD_VIEW_DTYPE(CUDA)
TD_VIEW_DTYPE(Meta)
TD_VIEW_DTYPE(MPS)
TD_VIEW_DTYPE(XPU)
TD_VIEW_DTYPE(PrivateUse1)
TD_VIEW_DTYPE(QuantizedCPU)
TD_VIEW_DTYPE(SparseCPU)
TD_VIEW_DTYPE(SparseCsrCPU)
TD_VIEW_DTYPE(MkldnnCPU)
TD_VIEW_DTYPE(NestedTensorCPU)
#undef TD_VIEW_DTYPE

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("as_strided", &as_strided);
  m.impl("unfold", &unfold);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("view", &view);
  m.impl("_unsafe_view", &view);
  m.impl("alias", &alias);
  m.impl("expand", &expand);
  m.impl("detach", &alias);
  m.impl("view.dtype", &view_dtype);
  m.impl("view_copy.dtype", &view_copy_dtype);
  register_views_in_place(m);
  m.impl("unsafe_split.Tensor", &unsafe_split);
  m.impl("unsafe_split_with_sizes", &unsafe_split_with_sizes);
  m.impl("resize_", &resize_);
  m.impl("resize_as_", &resize_as_);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_empty);
  m.impl("is_set_to", &is_set_to);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("set_data", &set_data);
}

static void register_recorded_views(torch::Library& m) {
  m.impl("as_strided", &as_strided_recorded);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("set_data", &set_data);
}
TD_REGISTER_AUTOGRAD(register_recorded_views)

} // namespace at::formats
