// Format tensors, whose elements are codes of a number format, and the few functions that make,
// read and convert them.
//
// A format tensor has its real device and the dispatch key PrivateUse2. That key outranks CPU and
// CUDA, so every operator on a format tensor runs this package's kernel. Its TypeMeta is its
// container's; in a PyTorch tree, where a format is a ScalarType, it is the format's.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/formats/FormatRegistry.h>

#include <optional>
#include <vector>

namespace at::formats {

using c10::formats::Format;
using c10::formats::FormatEntry;

inline constexpr c10::DispatchKey kFormatKey = c10::DispatchKey::PrivateUse2;
inline constexpr c10::DispatchKey kFormatAutogradKey = c10::DispatchKey::AutogradPrivateUse2;

// Wrappers of torch.func inherit few backend bits from the tensor within, and PrivateUse2 is not
// among them. Without any bit, PyTorch would take them for CPU tensors. So format tensors also
// carry this lower bit, and their wrappers' autograd is at kWrappedAutogradKey. (HPU is an
// accelerator; its own tensors are passed on to the stock kernels.)
inline constexpr c10::BackendComponent kWrappedBackend = c10::BackendComponent::HPUBit;
inline constexpr c10::DispatchKey kWrappedAutogradKey = c10::DispatchKey::AutogradHPU;

inline bool is_format_tensor(const at::TensorBase& t) {
  return t.defined() &&
      t.unsafeGetTensorImpl()->key_set().has_backend(c10::BackendComponent::PrivateUse2Bit);
}

// How a tensor holds its format differs between builds. Beside a stock wheel the tensor points at
// it (native/formats/overlay/FormatTensorImpl.cpp). In a PyTorch tree the dtype says it
// (native/formats/intree/FormatTensorImpl.cpp). Only the next three functions depend on that.
//
// Makes a tensor of one dimension without elements, on a storage of codes.
c10::intrusive_ptr<c10::TensorImpl> make_format_impl(c10::Storage storage,
                                                     const FormatEntry& entry);
// The format of a format tensor; for any other tensor, an internal error.
const FormatEntry& entry_of(const at::TensorBase& t);
// Whether this process has ever made a format tensor: a cheap first question before costly ones.
bool any_format_tensor();

// The format of a tensor, also within wrappers of torch.func (vmap's and grad's); nullptr if it has
// none.
const FormatEntry* entry_beneath(const at::Tensor& t);
// The dtype number of any tensor, with a format or stock.
c10::ScalarType dtype_number(const at::Tensor& t);

// Makes an uninitialised tensor, contiguous in the given memory format or with the given strides.
at::Tensor empty_format(c10::IntArrayRef sizes, const FormatEntry& entry, c10::Device device,
                        std::optional<c10::MemoryFormat> memory_format = std::nullopt);
at::Tensor empty_strided_format(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                const FormatEntry& entry, c10::Device device);
// Makes an uninitialised tensor with self's sizes. As torch.preserve_format requires, it has self's
// strides if those are dense.
at::Tensor empty_like_format(const at::Tensor& self, const FormatEntry& entry,
                             std::optional<c10::MemoryFormat> memory_format = std::nullopt);

// The same memory seen through a stock dtype of the same width (no copy, no autograd), and back.
at::Tensor stock_alias(const at::Tensor& t, c10::ScalarType type);
inline at::Tensor bits_alias(const at::Tensor& t) {
  return stock_alias(t, entry_of(t).bits);
}
at::Tensor format_alias(const at::Tensor& stock, const FormatEntry& entry);
at::Tensor format_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                       int64_t offset);

// Returns a stock tensor itself if its elements fill a stretch of memory without gaps. Otherwise
// returns a copy that does, with its dimensions in the same order.
at::Tensor dense(const at::Tensor& stock);
// Decodes to a stock tensor of the format's compute dtype (float32 or float64). Values are exact;
// dense strides are kept.
at::Tensor decoded(const at::Tensor& t);
at::Tensor decoded(const at::Tensor& t, c10::ScalarType compute);
// Rounds a stock tensor's values once to the format; dense strides are kept.
at::Tensor encoded(const at::Tensor& stock, const FormatEntry& entry);
// The same for several tensors in a GPU's memory, of one format with compute dtype float32, in one
// launch where possible. encoded_together() returns nothing in a mode that draws random bits.
std::vector<at::Tensor> decoded_together(at::TensorList ours);
std::vector<at::Tensor> encoded_together(at::TensorList stock, const FormatEntry& entry);
// Rounds into an existing format tensor, with broadcasting.
void encode_into(const at::Tensor& target, const at::Tensor& stock);
// Converts a format tensor to any stock dtype, rounded once.
at::Tensor to_stock(const at::Tensor& t, c10::ScalarType type);
// Converts a format tensor to another format, rounded once.
at::Tensor to_format(const at::Tensor& t, const FormatEntry& entry);
// Encodes a real number: as a 0-dim tensor on the CPU that no transformation of torch.func wraps,
// and as a code.
at::Tensor encoded_number(const c10::Scalar& value, const FormatEntry& entry);
uint64_t encode_scalar(const c10::Scalar& value, const FormatEntry& entry);

// A dtype argument that names the container means the container only if a user wrote it. Stock code
// passes on `self.scalar_type()`, and there it means the tensor's own dtype. The Python layer holds
// this guard while it runs a user's explicit dtype=.
struct ExplicitDtypeGuard {
  ExplicitDtypeGuard();
  ~ExplicitDtypeGuard();
  ExplicitDtypeGuard(const ExplicitDtypeGuard&) = delete;
  ExplicitDtypeGuard& operator=(const ExplicitDtypeGuard&) = delete;
  static bool active();

 private:
  bool previous_;
};

// Hides a call from Python's dispatch modes. PyTorch looks up a call's dtype numbers in a table
// that ends before a format's number, and would read beyond its end.
struct HiddenFromModes {
  c10::impl::ExcludeDispatchKeyGuard python{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// Autocast leaves format tensors alone, because their dtype is the user's explicit choice. This
// guard makes it also leave alone the exact values that stand for them in a stock kernel.
struct OutOfAutocast {
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

// Whether memory of zero bits holds zeros: true for all formats but tables of values.
bool zero_is_code_zero(const Format& format);

// Resolves a dtype argument for a format tensor: a format, or nullptr for the stock dtype `type`.
const FormatEntry* requested_format(std::optional<c10::ScalarType> type, const FormatEntry& own);

// Raises for a layout other than strided: no format tensor is sparse.
void expect_strided(std::optional<c10::Layout> layout);
// Raises for a tensor that cannot become a format tensor: quantised, nested or mkldnn.
void expect_ordinary(const at::Tensor& self, c10::ScalarType target);

} // namespace at::formats
