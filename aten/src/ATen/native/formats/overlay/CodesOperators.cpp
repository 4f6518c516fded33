// A graph's operator on codes runs the stock operator as eager code does, on tensors of ours that see the same memory.
#include <ATen/native/formats/overlay/CodesOperators.h>

#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/Chain.h>
#include <ATen/native/formats/Chop.h>
#include <ATen/native/formats/DeviceKernels.h>
#include <ATen/native/formats/Elementary.h>
#include <ATen/native/formats/GpuCasts.h>
#include <ATen/native/formats/GpuKernels.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/formats/ForkSafeMutex.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace at::formats {
namespace {

using c10::IValue;
using torch::jit::Stack;

struct Formats {
  std::vector<const FormatEntry*> entries; // of each tensor among the arguments; nullptr: a stock one
  bool exact = false;                      // a dtype among them means itself, also where it is the container
};
constexpr std::string_view kExact = ",exact";

c10::formats::ForkSafeMutex mutex;

// A graph's text, which a process reads once.
const Formats& read(const std::string& text) {
  static auto* const known = new std::map<std::string, Formats>; // guarded by the mutex; nodes stay where they are
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = known->find(text); found != known->end()) return found->second;
  }
  Formats made; // without the mutex: reading a name may want Python's lock
  std::string_view rest = text;
  if (rest.size() >= kExact.size() && rest.substr(rest.size() - kExact.size()) == kExact) {
    made.exact = true;
    rest.remove_suffix(kExact.size());
  }
  while (!rest.empty()) {
    const std::string name(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    made.entries.push_back(name == "-" ? nullptr : &c10::formats::register_format(format_named(name), name));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  return known->emplace(text, std::move(made)).first->second;
}

// Applies f to each tensor within a value, in order; an absent one is passed by.
template <typename F>
void replace_tensors(IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = f(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(f(t));
    value = std::move(list);
  } else if (value.isList() && value.toListRef().size() > 0) { // of tensors that may be absent
    const auto old = value.toListRef();
    if (!std::any_of(old.begin(), old.end(), [](const IValue& v) { return v.isTensor(); })) return;
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& v : old) list.push_back(v.isTensor() ? std::optional(f(v.toTensor())) : std::nullopt);
    value = std::move(list);
  }
}

class CodesKernel final : public c10::OperatorKernel {
 public:
  CodesKernel(c10::OperatorHandle stock, std::vector<size_t> written) : stock_(std::move(stock)), written_(std::move(written)) {
    const auto& arguments = stock_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].real_type()->kind() == c10::TypeKind::TensorType) tensors_.push_back(i);
    }
  }

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Formats& formats = read(stack->back().toStringRef());
    stack->pop_back();
    const size_t count = stock_.schema().arguments().size(), first = stack->size() - count;
    for (const size_t i : tensors_) {
      IValue& value = (*stack)[first + i];
      if (value.isScalar()) value = at::native::wrapped_scalar_tensor(value.toScalar()); // as Python's numbers come to it
    }
    size_t place = 0;
    for (size_t i = first; i < stack->size(); ++i) {
      replace_tensors((*stack)[i], [&](const at::Tensor& t) {
        const bool is_number = t.unsafeGetTensorImpl()->is_wrapped_number();
        const FormatEntry* const entry = is_number ? nullptr : formats.entries.at(place++);
        return entry ? format_alias(t, *entry) : t;
      });
    }
    const at::AutoDispatchBelowADInplaceOrView below; // where the graph was recorded
    std::vector<IValue> kept;
    for (const size_t i : written_) {
      replace_tensors((*stack)[first + i], [](const at::Tensor& t) { return at::_ops::clone::call(t, {}); });
      kept.push_back((*stack)[first + i]);
    }
    {
      std::optional<ExplicitDtypeGuard> exact;
      if (formats.exact) exact.emplace();
      stock_.callBoxed(stack);
    }
    Stack results;
    Stack found;
    for (size_t i = first; i < stack->size(); ++i) { // but not what it has written and returns
      const auto* alias = stock_.schema().returns()[i - first].alias_info();
      if (!(alias && alias->isWrite())) found.push_back((*stack)[i]);
    }
    found.insert(found.end(), kept.begin(), kept.end());
    for (IValue& value : found) {
      if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) results.emplace_back(at::empty({0}, at::kByte));
      replace_tensors(value, [&](const at::Tensor& t) {
        results.emplace_back(is_format_tensor(t) ? bits_alias(t) : t);
        return t;
      });
    }
    stack->resize(first);
    for (IValue& result : results) stack->push_back(std::move(result));
  }

 private:
  c10::OperatorHandle stock_;
  std::vector<size_t> written_, tensors_; // places of arguments
};

// A cast to one of our dtypes, which no schema of PyTorch's can name: from what and to what.
at::Tensor cast(const at::Tensor& input, c10::string_view formats) {
  const Formats& named = read(std::string(formats));
  const FormatEntry *from = named.entries.at(0), *to = named.entries.at(1);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor source = from ? format_alias(input, *from) : input;
  return bits_alias(at::_ops::_to_copy::call(source, c10::formats::scalar_type(*to), {}, {}, {}, false, {}));
}

// One that drew nothing when it was recorded: of values that were chosen from others, or of a number, which modes that draw do not move.
at::Tensor certain_cast(const at::Tensor& input, c10::string_view formats) {
  const FormatEntry* to = read(std::string(formats)).entries.at(1);
  const bool moves = c10::formats::is_stochastic(rounding_format(*to).rounding);
  const RoundingGuard guard(moves ? std::optional(Rounding::NearestEven) : rounding_override());
  return cast(input, formats);
}

// What a table of as many codes as there are has for each code.
at::Tensor look_up_codes(const at::Tensor& input, const at::Tensor& table) {
  TORCH_CHECK(input.itemsize() <= 2 && table.scalar_type() == input.scalar_type() && table.dim() == 1 && table.is_contiguous() &&
                  table.numel() == (int64_t{1} << 8 * input.itemsize()),
              "expected codes of 8 or 16 bits and a table of all of them, but got ", input.toString(), " and ", table.toString(), " of shape ",
              table.sizes());
  const at::Tensor in = dense(input);
  expect_one_device(in.device(), table.device());
  const at::Tensor out = at::empty_like(in);
  if (on_gpu(in.device())) {
    look_up_on_gpu(table, in, out);
  } else {
    kernels(in.device(), "look_up");
    look_up(table, in, out);
  }
  return out;
}

// Elementwise operators of one format, fused.
std::vector<at::Tensor> chain(const at::TensorList operands, const at::TensorList tables, c10::string_view program) {
  struct Known {
    Chain chain;
    const FormatEntry* entry;
  };
  static auto* const known = new std::map<std::string, Known, std::less<>>; // guarded by the mutex; nodes stay where they are
  const Known* found = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto at = known->find(program); at != known->end()) found = &at->second;
  }
  if (!found) {
    Known made{Chain::parse(std::string(program)), nullptr};
    made.entry = &c10::formats::register_format(format_named(made.chain.format), made.chain.format);
    const std::lock_guard<std::mutex> lock(mutex);
    found = &known->emplace(program, std::move(made)).first->second;
  }
  return run_chain(found->chain, *found->entry, operands, tables);
}

} // namespace

void register_codes_operator(const std::string& label, const std::string& schema, bool draws, const std::string& stock, const std::string& overload,
                             std::vector<size_t> written) {
  static auto* const definitions = new torch::Library(torch::Library::FRAGMENT, "torch_dtypes_codes", std::nullopt, __FILE__, __LINE__);
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "torch_dtypes_codes", c10::DispatchKey::CompositeExplicitAutograd, __FILE__, __LINE__);
  const std::vector<at::Tag> certain{at::Tag::pt2_compliant_tag}, random{at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded};
  definitions->def(torch::schema(schema.c_str(), c10::AliasAnalysisKind::FROM_SCHEMA), draws ? random : certain);
  auto kernel = std::make_unique<CodesKernel>(c10::Dispatcher::singleton().findSchemaOrThrow(stock.c_str(), overload.c_str()), std::move(written));
  library->impl(label.c_str(), torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(std::move(kernel))));
}

TORCH_LIBRARY_FRAGMENT(torch_dtypes_codes, m) {
  m.def("cast(Tensor input, *, str formats) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("cast.random(Tensor input, *, str formats) -> Tensor", {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
  m.def("look_up(Tensor input, Tensor table) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("chain(Tensor[] operands, Tensor[] tables, *, str program) -> Tensor[]", {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(torch_dtypes_codes, CompositeExplicitAutograd, m) {
  m.impl("cast", &certain_cast);
  m.impl("cast.random", &cast);
  m.impl("look_up", &look_up_codes);
  m.impl("chain", &chain);
}

} // namespace at::formats
