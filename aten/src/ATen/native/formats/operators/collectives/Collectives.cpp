// torch.distributed's operators (c10d::, which process groups call) on format tensors.
//
// Operators that only move elements get the codes, as a stock dtype of their width. Operators that
// add up get the exact values in float32 or float64, and the result is rounded once when the work
// is waited for. Under an accumulation policy that no stock kernel obeys, the codes of all ranks
// are gathered and added up here, in rank order.
//
// Before either, the ranks compare their dtypes (CollectiveTerms.h): a stock process group takes
// tensors of different widths for a corrupt stream, which ends the process.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/FewRandomBits.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/Releases.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/operators/collectives/CollectiveArguments.h>
#include <ATen/native/formats/operators/collectives/CollectiveTerms.h>
#include <ATen/native/formats/operators/collectives/CollectiveWork.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/view_ops.h>
#include <torch/library.h>

#include <iterator>
#include <optional>
#include <utility>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10d::ReduceOp;
using torch::jit::Stack;

enum class Kind : uint8_t {
  Moves,
  Reduces, // argument 0 is reduced in place
  Scatters, // argument 1 is reduced; argument 0 gets this rank's part
  Sends,
  Receives,
};

// The stock dtype of that width that every process group moves; they know no int16.
ScalarType moved_type(const FormatEntry& entry) {
  switch (entry.format.itemsize()) {
    case 1: return ScalarType::Byte;
    case 2: return ScalarType::Half;
    case 4: return ScalarType::Int;
    default: return ScalarType::Long;
  }
}

// A thread's rounding and accumulation, for the thread that does the work later.
struct Manner {
  std::optional<Rounding> rounding;
  FewRandomBits bits;
  Accumulation policy;
  std::optional<at::Generator> seeds;

  template <typename Body>
  void run(Body&& body) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const HiddenFromModes hidden;
    const OutOfAutocast no_autocast;
    const RoundingGuard rounding_guard(rounding);
    struct Restore {
      std::optional<Accumulation> policy;
      std::optional<at::Generator> source;
      FewRandomBits bits;
      ~Restore() {
        set_few_bits_override(bits);
        set_accumulation_override(policy);
        set_word_source(source);
      }
    } const restore{set_accumulation_override(policy), set_word_source(seeds),
                    set_few_bits_override(bits)};
    body();
  }
};

// One call of such an operator, on the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op),
        stack_(*stack),
        base_(stack->size() - op.schema().arguments().size()),
        group_(argument("process_group")->toCustomClass<c10d::ProcessGroup>()) {
    for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
      each_tensor(stack_[base_ + i], [&](const at::Tensor& t) { look_at(t); });
    }
    if (const c10::IValue* given = argument("timeout"))
      timeout_ = std::chrono::milliseconds(given->toInt());
    if (const c10::IValue* given = argument("reduce_op"))
      reduction_ = given->toCustomClass<ReduceOp>()->op_;
    if (const c10::IValue* given = argument("async_op")) waits_ = !given->toBool();
  }

  void run(Kind kind) {
    switch (kind) {
      case Kind::Moves: return move();
      case Kind::Reduces: return by_policy() ? reduce_gathered() : reduce_values(0);
      case Kind::Scatters: return by_policy() ? reduce_exchanged() : reduce_values(1);
      case Kind::Sends: return send();
      case Kind::Receives: return receive();
    }
  }

 private:
  const c10::IValue* argument(const char* name) const {
    const auto place = op_.schema().argumentIndexWithName(name);
    return place ? &stack_[base_ + *place] : nullptr;
  }
  c10::IValue& at(size_t place) { return stack_[base_ + place]; }
  const std::string& name() const { return op_.schema().name(); }
  std::string dtype() const { return "torch." + entry_->name; }

  void look_at(const at::Tensor& t) {
    const FormatEntry* entry = is_format_tensor(t) ? &entry_of(t) : nullptr;
    TORCH_CHECK_NOT_IMPLEMENTED(
        t.device().is_cpu() || on_gpu(t.device()), name(),
        ": expected a tensor on the CPU or a GPU for a number format, but got one on ", t.device(),
        ".");
    TORCH_CHECK(first_ == nullptr || t.device() == first_->device(), name(),
                ": expected tensors on one device, but got ", first_->device(), " and ", t.device(),
                ".");
    TORCH_CHECK(first_ == nullptr ||
                    (entry == entry_ && (entry || t.scalar_type() == first_->scalar_type())),
                name(), ": expected tensors of one dtype, but got ", named(*first_), " and ",
                named(t), ". Convert one of the two.");
    if (!first_) entry_ = entry;
    first_ = &t;
  }
  static std::string named(const at::Tensor& t) {
    return "torch." +
        (is_format_tensor(t) ? entry_of(t).name
                             : std::string(c10::getDtypeNames(t.scalar_type()).first));
  }

  bool adds() const { return reduction_ == ReduceOp::SUM || reduction_ == ReduceOp::AVG; }
  bool by_policy() const { return adds() && accumulation_of(*entry_).own_kernels(); }

  std::string reduction_name() const {
    constexpr const char* kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
    const auto place = static_cast<size_t>(reduction_);
    return place < std::size(kNames) ? kNames[place] : "another";
  }

  // The argument whose tensors must have one size on all ranks: gloo ends a process that receives
  // more than it has room for.
  std::optional<size_t> sized_alike() const {
    const std::string& op = name();
    if (op.rfind("c10d::alltoall", 0) == 0) return std::nullopt;
    const bool one_list = op == "c10d::broadcast_" || op == "c10d::scatter_" ||
        op == "c10d::reduce_" || op.rfind("c10d::allreduce", 0) == 0;
    return one_list ? 0 : 1;
  }

  bool is_root() const {
    const c10::IValue* root = argument("root_rank");
    return !root || root->toInt() == group_->getRank();
  }

  static bool steps_draw(const Accumulation& policy) {
    const auto draws = [](const FormatEntry* entry) {
      return entry && c10::formats::is_stochastic(entry->format.rounding);
    };
    return (policy.rounding && c10::formats::is_stochastic(*policy.rounding)) ||
        draws(policy.product) || draws(policy.accumulator) || draws(policy.outer);
  }

  // Agrees on terms with the other ranks and returns how this rank rounds. One seed serves all
  // ranks, so that they get the same result, or parts of it.
  Manner compare(bool parts = false) {
    Terms terms;
    terms.call = name();
    terms.dtype = dtype();
    if (const c10::IValue* root = argument("root_rank"))
      terms.root = c10::str("rank ", root->toInt());
    const bool by_tensor = name() != "c10d::allgather_coalesced_"; // its lists are by rank first
    if (is_root() && by_tensor)
      terms.fault =
          fault_of_lists(c10::ArrayRef<c10::IValue>(&stack_[base_], 2), group_->getSize());
    if (const auto place = sized_alike()) {
      int64_t elements = 0;
      each_tensor(at(*place), [&](const at::Tensor& t) { elements += t.numel(); });
      terms.size = c10::str(elements, " elements");
    }
    Manner manner;
    if (argument("reduce_op")) {
      const Format format = rounding_format(*entry_);
      terms.call += " " + reduction_name();
      manner.policy = accumulation_of(*entry_);
      const bool rounds = adds() || reduction_ == ReduceOp::PRODUCT;
      // Without rounding, nearest even moves no value.
      const Rounding rounding = rounds ? format.rounding : Rounding::NearestEven;
      // Keeps the block's mode, not the dtype's: accumulators of other formats have their own.
      manner.rounding = rounds ? rounding_override() : rounding;
      manner.bits = few_bits_override();
      terms.rounding = c10::formats::kRoundingModes[static_cast<int>(rounding)].name;
      if (rounding == Rounding::Stochastic && format.random_bits != 0) // as in names of formats
        terms.rounding +=
            c10::str("_", "abc" [static_cast<int>(format.few_bits)], int { format.random_bits });
      terms.policy = describe(manner.policy);
      const bool draws = c10::formats::is_stochastic(rounding) || steps_draw(manner.policy);
      if (draws) terms.number = next_seed().number;
      terms.number = agree(terms, group_, first_->device(), timeout_);
      if (draws)
        manner.seeds =
            at::detail::createCPUGenerator(terms.number + (parts ? group_->getRank() : 0));
      return manner;
    }
    std::vector<int64_t> sent, awaited;
    const bool parted = !sized_alike();
    if (parted) {
      awaited = parts_by_rank(at(0), argument("output_split_sizes"), "output", group_->getSize(),
                              terms.fault);
      sent = parts_by_rank(at(1), argument("input_split_sizes"), "input", group_->getSize(),
                           terms.fault);
    }
    agree(terms, group_, first_->device(), timeout_);
    if (parted) agree_on_parts(terms, sent, awaited, group_, first_->device(), timeout_);
    return manner;
  }

  // Calls the stock operator on the stack, and replaces its results by the format tensors.
  void finish_with(const c10::IValue& outputs, std::function<void()> rest) {
    op_.callBoxed(&stack_);
    give(stack_.back().toCustomClass<c10d::Work>(), outputs, std::move(rest),
         op_.schema().returns().size());
  }
  // The same after other operators did the work: the call's arguments are still on the stack.
  void finish_instead(c10::intrusive_ptr<c10d::Work> beneath, std::function<void()> rest) {
    const c10::IValue outputs = at(0);
    stack_.resize(base_);
    const size_t results = op_.schema().returns().size();
    stack_.resize(base_ + results);
    give(std::move(beneath), outputs, std::move(rest), results);
  }
  void give(c10::intrusive_ptr<c10d::Work> beneath, const c10::IValue& outputs,
            std::function<void()> rest, size_t results) {
    const Tensors written = flat(outputs);
    const bool in_block =
        !written.empty() && written[0].is_cuda() && left_for_all(*group_, written, rest);
    c10::intrusive_ptr<c10d::Work> work;
    if (beneath && !in_block) {
      work = c10::make_intrusive<CollectiveWork>(std::move(beneath), written, std::move(rest));
    } else if (!in_block) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          waits_, name(), ": expected a single call for ", dtype(),
          ", but got one within a group of NCCL calls, none of which ",
          "tells when it is done. Send and receive torch_dtypes.codes(x), or use "
          "torch.distributed.batch_isend_irecv.");
      // If NCCL returns no work, all is queued in the current stream; so is the rest.
      rest();
    }
    if (results == 2) stack_[stack_.size() - 2] = outputs;
    stack_.back() = c10::IValue(std::move(work));
  }

  void move() {
    compare();
    const c10::IValue outputs = at(0);
    // Copies codes of tensors with gaps or overlaps, where stock code would move the memory in
    // between. Also copies other orders of memory, which NCCL refuses.
    std::vector<std::pair<at::Tensor, at::Tensor>> apart;
    for (size_t i = 0; i < op_.schema().arguments().size(); ++i) {
      at(i) = mapped(at(i), [&](const at::Tensor& t) {
        const at::Tensor codes = stock_alias(t, moved_type(*entry_));
        if (on_host(t.device()) ? t.is_non_overlapping_and_dense() : t.is_contiguous())
          return codes;
        const at::Tensor dense = codes.contiguous();
        if (i == 0) apart.emplace_back(codes, dense);
        return dense;
      });
    }
    finish_with(outputs, [apart = std::move(apart)] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (const auto& [codes, dense] : apart) {
        hold_on_stream(dense);
        at::_ops::copy_::call(const_cast<at::Tensor&>(codes), dense, false);
      }
    });
  }

  void expect_reduction() const {
    const bool known = adds() || reduction_ == ReduceOp::PRODUCT || reduction_ == ReduceOp::MIN ||
        reduction_ == ReduceOp::MAX;
    TORCH_CHECK(known, name(), ": expected SUM, AVG, PRODUCT, MIN or MAX for ", dtype(),
                ", but got ", reduction_name(), ".");
  }

  void reduce_values(size_t inputs) {
    expect_reduction();
    const Manner manner = compare(inputs == 1);
    ScalarType type = entry_->compute;
    if (manner.policy.kind == Accumulation::Kind::Float64) type = ScalarType::Double;
    TORCH_CHECK(
        manner.policy.kind != Accumulation::Kind::Float32 || type == ScalarType::Float, name(),
        ": expected a format whose values fit float32, for the accumulation policy float32, "
        "but got ",
        dtype(), ". Use float64 or exact.");
    const c10::IValue outputs = at(0);
    for (size_t i = 0; i <= inputs; ++i) {
      at(i) = mapped(at(i), [&](const at::Tensor& t) { return to_stock(t, type); });
    }
    const Tensors targets = flat(outputs), values = flat(at(0));
    const bool averages = reduction_ == ReduceOp::AVG;
    if (averages) {
      const size_t place = *op_.schema().argumentIndexWithName("reduce_op");
      at(place) = c10::IValue(c10::make_intrusive<ReduceOp>(ReduceOp::SUM));
    }
    const bool receives = is_root();
    const int size = group_->getSize();
    finish_with(outputs, [=] {
      if (!receives) return;
      manner.run([&] {
        for (size_t i = 0; i < targets.size(); ++i) {
          hold_on_stream(values[i]);
          encode_into(targets[i], averages ? values[i].div(size) : values[i]);
        }
      });
    });
  }

  // Adds up all ranks' codes (ranks, n) into the targets, which have n elements together.
  std::function<void()> adding(const at::Tensor& gathered, Manner manner, const Tensors& targets,
                               bool receives) const {
    const bool averages = reduction_ == ReduceOp::AVG;
    return [gathered, manner = std::move(manner), targets, receives, averages, entry = entry_] {
      if (!receives) return;
      manner.run([&] {
        hold_on_stream(gathered);
        const at::Tensor all = format_alias(stock_alias(gathered, entry->container), *entry);
        const at::Tensor sums = averages
            ? at::_ops::mean_dim::call(all, at::IntArrayRef{0}, false, {})
            : at::_ops::sum_dim_IntList::call(all, at::IntArrayRef{0}, false, {});
        const at::Tensor codes = bits_alias(sums);
        int64_t first = 0;
        for (const at::Tensor& t : targets) {
          at::Tensor target = bits_alias(t);
          at::_ops::copy_::call(target, codes.narrow(0, first, t.numel()).view(t.sizes()), false);
          first += t.numel();
        }
      });
    };
  }

  at::Tensor codes_in_a_row(const at::Tensor& t) const {
    return stock_alias(t, moved_type(*entry_)).reshape(-1);
  }

  void reduce_gathered() {
    const Manner manner = compare();
    const Tensors targets = flat(at(0));
    TORCH_CHECK(targets.size() == 1 || name() == "c10d::allreduce_coalesced_", name(),
                ": expected one tensor, but got ", targets.size(), ".");
    Tensors rows;
    for (const at::Tensor& t : targets) rows.push_back(codes_in_a_row(t));
    const at::AutoDispatchBelowADInplaceOrView guard;
    Tensors inputs{at::cat(rows)};
    const at::Tensor gathered =
        at::empty({group_->getSize(), inputs[0].numel()}, inputs[0].options());
    std::vector<Tensors> outputs{gathered.unbind()};
    c10d::AllgatherOptions options;
    options.timeout = timeout_;
    const bool receives = is_root();
    finish_instead(group_->allgather(outputs, inputs, options),
                   adding(gathered, manner, targets, receives));
  }

  void reduce_exchanged() {
    const Manner manner = compare(true);
    const int64_t ranks = group_->getSize();
    const Tensors targets = flat(at(0)), given = flat(at(1));
    // one target, and one tensor for each rank
    const bool listed = name() == "c10d::reduce_scatter_";
    TORCH_CHECK(given.size() == targets.size() * (listed ? ranks : 1), name(), ": expected ",
                targets.size() * (listed ? ranks : 1), " tensors to reduce, but got ", given.size(),
                ".");
    const at::AutoDispatchBelowADInplaceOrView guard;
    Tensors parts; // (ranks, elements of a target)
    for (size_t i = 0; i < targets.size(); ++i) {
      Tensors rows;
      for (size_t k = 0; k < (listed ? given.size() : 1); ++k)
        rows.push_back(codes_in_a_row(given[i + k]));
      const at::Tensor row = at::cat(rows);
      TORCH_CHECK(row.numel() == ranks * targets[i].numel(), name(), ": expected ", ranks,
                  " times the ", targets[i].numel(), " elements of the output to reduce, but got ",
                  row.numel(), ".");
      parts.push_back(row.view({ranks, -1}));
    }
    at::Tensor sent = at::cat(parts, 1), received = at::empty_like(sent);
    std::vector<int64_t> even; // one row a rank; gloo of PyTorch 2.11 has no alltoall of lists
    c10d::AllToAllOptions options;
    options.timeout = timeout_;
    finish_instead(group_->TORCH_DTYPES_ALL_TO_ALL(received, sent, even, even, options),
                   adding(received, manner, targets, true));
  }

  // The codes of a contiguous tensor, as bytes in memory order.
  static at::Tensor bytes_of(const at::Tensor& t) {
    return at::_ops::view_dtype::call(stock_alias(t, moved_type(entry_of(t))).view(-1), at::kByte);
  }

  // Between two ranks nothing can be compared in advance: terms and codes go in one message.
  at::Tensor single(const char* what) {
    const Tensors tensors = flat(at(0));
    TORCH_CHECK(tensors.size() == 1, name(), ": expected one tensor, but got ", tensors.size(),
                ".");
    TORCH_CHECK(tensors[0].is_contiguous(), name(), ": expected a contiguous tensor to ", what,
                ", but got strides ", tensors[0].strides(), ". Use x.contiguous().");
    return tensors[0];
  }

  void send() {
    const at::Tensor t = single("send");
    const at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor codes = bytes_of(t);
    Terms terms;
    terms.call = "c10d::send";
    terms.dtype = dtype();
    terms.number = codes.numel();
    const at::Tensor head = at::empty({kTermsSize}, at::kByte);
    terms.write(head.mutable_data_ptr());
    at(0) = Tensors{at::cat({head.to(t.device()), codes})};
    finish_with(Tensors{t}, [] {});
  }

  // Receives with room for the widest dtype, because in gloo a message longer than the buffer ends
  // the process. Unused pages are never allocated. NCCL requires the same size on both sides.
  void receive() {
    const at::Tensor t = single("receive into");
    const at::AutoDispatchBelowADInplaceOrView guard;
    const int64_t widest = on_host(t.device()) ? 8 : entry_->format.itemsize();
    const at::Tensor message =
        at::empty({kTermsSize + t.numel() * widest}, t.options().dtype(at::kByte));
    message.narrow(0, 0, kTermsSize).zero_();
    at(0) = Tensors{message};
    finish_with(Tensors{t}, [t, message, entry = entry_, name = name()] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      Terms terms;
      const bool known = terms.read(message.narrow(0, 0, kTermsSize).cpu().const_data_ptr());
      TORCH_CHECK(known, name, ": expected codes of torch.", entry->name,
                  ", but got a message of a stock dtype. Receive into a tensor of that dtype.");
      TORCH_CHECK(terms.dtype == "torch." + entry->name, name, ": expected codes of torch.",
                  entry->name, ", but got ", terms.dtype,
                  ". Send and receive tensors of one dtype.");
      const auto bytes = static_cast<uint64_t>(t.numel() * entry->format.itemsize());
      TORCH_CHECK(terms.number == bytes, name, ": expected ", t.numel(), " elements, but got ",
                  terms.number / entry->format.itemsize(), ".");
      bytes_of(t).copy_(message.narrow(0, kTermsSize, static_cast<int64_t>(bytes)));
    });
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  size_t base_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const FormatEntry* entry_{nullptr};
  const at::Tensor* first_{nullptr};
  std::chrono::milliseconds timeout_{c10d::kUnsetTimeout};
  ReduceOp::RedOpType reduction_{ReduceOp::UNUSED};
  bool waits_{false}; // true: the caller waits before it goes on
};

class CollectiveKernel final : public c10::OperatorKernel {
 public:
  explicit CollectiveKernel(Kind kind) : kind_(kind) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    Call(op, stack).run(kind_);
  }

 private:
  Kind kind_;
};

void register_collectives(torch::Library& m, Kind kind, std::initializer_list<const char*> names) {
  for (const char* name : names)
    m.impl(name,
           torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CollectiveKernel>(kind)));
}

} // namespace

TORCH_LIBRARY_IMPL(c10d, PrivateUse2, m) {
  register_collectives(
      m, Kind::Moves,
      {"broadcast_", "allgather_", "_allgather_base_", "allgather_coalesced_",
       "allgather_into_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_"});
  register_collectives(m, Kind::Reduces, {"allreduce_", "allreduce_coalesced_", "reduce_"});
  register_collectives(
      m, Kind::Scatters,
      {"reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"});
  register_collectives(m, Kind::Sends, {"send"});
  register_collectives(m, Kind::Receives, {"recv_", "recv_any_source_"});
}

TORCH_LIBRARY_FRAGMENT(torch_dtypes, m) {
  m.def("begin_together(__torch__.torch.classes.c10d.ProcessGroup group) -> ()", &begin_together);
  m.def(
      "end_together(__torch__.torch.classes.c10d.ProcessGroup group, "
      "__torch__.torch.classes.c10d.Work? work) -> __torch__.torch.classes.c10d.Work?",
      [](const c10::intrusive_ptr<c10d::ProcessGroup>& group,
         std::optional<c10::intrusive_ptr<c10d::Work>> work) {
        c10::intrusive_ptr<c10d::Work> all =
            end_together(group, work.value_or(c10::intrusive_ptr<c10d::Work>()));
        return all ? std::make_optional(std::move(all)) : std::nullopt;
      });
}

} // namespace at::formats
