// A tensor whose elements are codes of a number format, and the few ways to make one, look into it
// and convert it.
//
// Such a tensor has its real device, and the dispatch key PrivateUse2, which outranks CPU and CUDA,
// so that every operator that sees one of our tensors runs our kernel. Its TypeMeta is its
// container's; in a PyTorch tree, where a format is a ScalarType, its own.
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

// The tensors that torch.func wraps around ours inherit few backend bits, and PrivateUse2 is not
// among them; without any they would be taken for CPU tensors. Our tensors carry this lower one for
// them, so that their autograd is at kWrappedAutogradKey. (HPU: an accelerator whose own tensors go
// on to the stock kernels.)
inline constexpr c10::BackendComponent kWrappedBackend = c10::BackendComponent::HPUBit;
inline constexpr c10::DispatchKey kWrappedAutogradKey = c10::DispatchKey::AutogradHPU;

inline bool is_format_tensor(const at::TensorBase& t) {
  return t.defined() &&
      t.unsafeGetTensorImpl()->key_set().has_backend(c10::BackendComponent::PrivateUse2Bit);
}

// How a tensor holds its format differs between builds: beside a stock wheel the tensor points at
// it (native/formats/overlay/FormatTensorImpl.cpp), in a PyTorch tree its dtype says it
// (native/formats/intree/FormatTensorImpl.cpp). These three functions are all that knows.
//
// A tensor of one dimension without elements, on a storage of codes.
c10::intrusive_ptr<c10::TensorImpl> make_format_impl(c10::Storage storage,
                                                     const FormatEntry& entry);
// The format of one of our tensors; an internal error for any other.
const FormatEntry& entry_of(const at::TensorBase& t);
// Whether this process has ever made one: a cheap first question where finding one out is dear.
bool any_format_tensor();

// The same for a tensor of ours within wrappers of torch.func (vmap's and grad's), or nullptr where
// there is none.
const FormatEntry* entry_beneath(const at::Tensor& t);
// The dtype number of any tensor: ours or the stock one.
c10::ScalarType dtype_number(const at::Tensor& t);

// A new uninitialised tensor. Contiguous in the given memory format, or with the given strides.
at::Tensor empty_format(c10::IntArrayRef sizes, const FormatEntry& entry, c10::Device device,
                        std::optional<c10::MemoryFormat> memory_format = std::nullopt);
at::Tensor empty_strided_format(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                const FormatEntry& entry, c10::Device device);
// Uninitialised, with self's sizes and, as torch.preserve_format asks, its strides where they are
// dense.
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

// A stock tensor itself where its elements fill a stretch of memory without gaps, else a copy that
// does, its dimensions in the same order.
at::Tensor dense(const at::Tensor& stock);
// The exact values as a stock tensor of the format's compute type (float32 or float64), dense
// strides kept.
at::Tensor decoded(const at::Tensor& t);
at::Tensor decoded(const at::Tensor& t, c10::ScalarType compute);
// A stock tensor's values rounded once to the format; strides kept where dense.
at::Tensor encoded(const at::Tensor& stock, const FormatEntry& entry);
// The same of several tensors in a GPU's memory, of one format and float32, in one launch where
// they fit in one; encoded: none in a mode that draws.
std::vector<at::Tensor> decoded_together(at::TensorList ours);
std::vector<at::Tensor> encoded_together(at::TensorList stock, const FormatEntry& entry);
// The same into an existing tensor of ours, with broadcasting.
void encode_into(const at::Tensor& target, const at::Tensor& stock);
// One of ours to any stock dtype, rounded once.
at::Tensor to_stock(const at::Tensor& t, c10::ScalarType type);
// One of ours to another format, rounded once.
at::Tensor to_format(const at::Tensor& t, const FormatEntry& entry);
// A real number as a 0-dim tensor on the CPU, wrapped by no transformation of torch.func, and as a
// code.
at::Tensor encoded_number(const c10::Scalar& value, const FormatEntry& entry);
uint64_t encode_scalar(const c10::Scalar& value, const FormatEntry& entry);

// A dtype argument that names the container means the container only when a user wrote it; from
// stock code, which passes on `self.scalar_type()`, it means the tensor's own dtype. The Python
// layer holds one of these while it runs a user's explicit dtype=.
struct ExplicitDtypeGuard {
  ExplicitDtypeGuard();
  ~ExplicitDtypeGuard();
  ExplicitDtypeGuard(const ExplicitDtypeGuard&) = delete;
  ExplicitDtypeGuard& operator=(const ExplicitDtypeGuard&) = delete;
  static bool active();

 private:
  bool previous_;
};

// Python's dispatch modes must not see a call with a dtype number of ours among its arguments:
// PyTorch looks the number up in a table that ends before it, and reads beyond.
struct HiddenFromModes {
  c10::impl::ExcludeDispatchKeyGuard python{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// Autocast leaves tensors of our dtypes alone, for the dtype is the user's explicit choice; so must
// it leave the exact values alone that stand for them in a stock kernel.
struct OutOfAutocast {
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

// Whether memory of zeros holds zeros: so in all formats but tables of values.
bool zero_is_code_zero(const Format& format);

// What a dtype argument asks for, seen from a tensor of ours: nullptr is `type` itself (a stock
// dtype), else a format.
const FormatEntry* requested_format(std::optional<c10::ScalarType> type, const FormatEntry& own);

// An error for a layout argument other than strided: there are no sparse tensors of number formats.
void expect_strided(std::optional<c10::Layout> layout);
// An error for what cannot become a tensor of that dtype of ours: quantised, nested and mkldnn
// tensors.
void expect_ordinary(const at::Tensor& self, c10::ScalarType target);

} // namespace at::formats
