// The table of PyTorch's operators: one row each, with the steps that run a call and the facts that
// the steps need.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace at::formats {

struct ProductKernels; // ProductKernels.h

// The steps of a row: a name, and a sentence on what it does. A call takes them in the row's order
// until one has run it. A variant of an operator leaves out the steps that its schema rules out.
// Steps.cpp compiles them.
// clang-format off
#define TD_FORALL_STEPS(_)                                                                        \
  _(Own, "Runs the package's own kernel; an overload without one takes the next step.")           \
  _(View,                                                                                         \
    "Makes a view that shares the codes' memory; an overload that makes none takes the next "     \
    "step.")                                                                                      \
  _(Contraction, "Runs as one matrix product if the accumulation policy has its own kernels.")    \
  _(Composed,                                                                                     \
    "Runs stock composite code, each operator rounded, if the policy or several dtypes need "     \
    "it: is_composed().")                                                                         \
  _(ExpectFinite,                                                                                 \
    "Raises if the first operand has an infinity or NaN, for which stock code reads beyond "      \
    "memory.")                                                                                    \
  _(CastOut, "Rounds the result to its format and casts it to the stock dtype of out=.")          \
  _(CheckOut, "Raises if out= has another dtype than the result.")                                \
  _(PolicyProducts, "Adds up by the accumulation policy's own kernel, if it has one.")            \
  _(RefusePolicy, "Raises if the fused stock kernel cannot obey the accumulation policy.")        \
  _(TensorCores, "Multiplies on a GPU's tensor cores under the policy machine.")                  \
  _(Gate,                                                                                         \
    "Copies codes on a GPU, and writes zeros where the second operand does not exceed a "         \
    "number.")                                                                                    \
  _(MovedCodes,                                                                                   \
    "Moves the codes as integers by the stock kernel, if all operands have one format.")          \
  _(Normalise, "Normalises an input by float32 parameters and rounds the result once.")           \
  _(PutNumbers, "Rounds the numbers in the row's arguments, which are put into a tensor.")        \
  _(CompareNumbers,                                                                               \
    "Replaces infinities in the row's arguments, which elements are compared with.")              \
  _(TouchLines, "Runs on the written lines alone: arguments self, dim, index.")                   \
  _(TouchElements,                                                                                \
    "Runs on the written elements of the flattened tensor alone: arguments self, index.")         \
  _(TouchPlaces,                                                                                  \
    "Runs on the written places alone: arguments self, dim, and an index for each element.")      \
  _(TouchIndexed, "Runs on the indexed elements alone: arguments self, indices.")                 \
  _(TouchRows, "Runs on the indexed rows of a gradient alone; the other rows are 0.")             \
  _(GiveLimits, "Replaces missing limits by the format's.")                                       \
  _(ExactPower, "Runs powers 2, -1 and 1/2 of wide formats by exactly rounded arithmetic.")       \
  _(LookUp, "Looks results up in a table of all codes, if the format is narrow.")                 \
  _(Boxed, "Decodes the operands, runs the stock kernel and rounds its results.")                 \
  _(Whole,                                                                                        \
    "Does the same as Boxed for stock composite code, which would depend on the storage "         \
    "dtype.")                                                                                     \
  _(PlaceByPlace, "Runs a list operator by single operators, one for each place of the lists.")   \
  _(Composite, "Runs stock composite code, over operators that have rows of their own.")          \
  _(Checked, "Checks the operands' dtypes, then runs stock composite code.")                      \
  _(Refused, "Raises an error with the reason that the row gives.")

// Facts of a row, by subject: a name, and a sentence on what follows from it.
#define TD_FORALL_VALUE_FACTS(_)                                                                  \
  _(Selects,                                                                                      \
    "Results are values of the operands, their negatives or the caller's numbers, and are not "   \
    "rounded.")                                                                                   \
  _(PutsZeros, "Results contain zeros too, so codes move only if code 0 means 0.")                \
  _(InFloat64, "The stock kernel runs in float64 for every format.")                              \
  _(LeavesRange,                                                                                  \
    "Results may leave float64's range where the function has no pole, and become the "           \
    "format's ends.")                                                                             \
  _(ComesNear,                                                                                    \
    "Results come near numbers that they never reach (FunctionEnds.h), and stay on their "        \
    "side.")                                                                                      \
  _(LargerDecides,                                                                                \
    "LeavesRange and ComesNear depend on the larger of two operands, and count zeros alone.")     \
  _(Powers,                                                                                       \
    "LeavesRange depends on a base or factor and an exponent, which may be numbers or of any "    \
    "dtype.")                                                                                     \
  _(NegativeZeros, "Results that have become 0 were negative.")                                   \
  _(MultipliesWithin,                                                                             \
    "The stock kernel multiplies matrices that it has made itself, so float32 must keep its "     \
    "digits.")
#define TD_FORALL_OPERAND_FACTS(_)                                                                \
  _(OneDtype,                                                                                     \
    "Floating operands of several dtypes raise, and so do integers that are neither indices "     \
    "nor masks.")                                                                                 \
  _(OneFloatingDtype, "Floating operands of several dtypes raise; integers are indices or masks.")\
  _(WeightNumber, "An argument `weight` without dimensions may have any dtype.")                  \
  _(AnyWeight, "The arguments `weight` and `pos_weight` do not decide the result's dtype.")       \
  _(AnyTarget,                                                                                    \
    "The argument `target`, of ones and minus ones, does not decide the result's dtype.")         \
  _(NumbersMultiply,                                                                              \
    "Operands without dimensions multiply as elements do, whatever their dtypes.")                \
  _(Internal,                                                                                     \
    "Only stock code calls it: operands of the storage dtype are its own and are cast.")
#define TD_FORALL_WRITE_FACTS(_)                                                                  \
  _(KeepsFirst, "The result has the first operand's dtype, whatever is put into it.")             \
  _(FirstAlone, "Only the first result is rounded; the others are kept exact for the derivative.")
#define TD_FORALL_RANDOM_FACTS(_)                                                                 \
  _(Draws, "It draws random numbers without an argument `generator`.")                            \
  _(Fills, "Only the sizes and strides of the first operand count.")                              \
  _(FillsInPlace, "Only the sizes and strides of the first operand count, in place.")             \
  _(BelowOne, "Numbers are drawn from [0, 1), and nothing is rounded up.")                        \
  _(Interval,                                                                                     \
    "Numbers are drawn from the arguments' interval [from, to), and none is rounded to an end "   \
    "that the format has.")                                                                       \
  _(Integers, "Integers are drawn from a range, and rounded ones stay in it (DrawnIntegers.h).")  \
  _(Positive, "Positive numbers are drawn, and none is rounded to 0.")
#define TD_FORALL_AUTOGRAD_FACTS(_)                                                               \
  _(ByCasts,                                                                                      \
    "Autograd records casts around the stock operator, because its derivative depends on the "    \
    "storage dtype.")                                                                             \
  _(KeepsLittle,                                                                                  \
    "In place: the stock formula builds a gradient from the operand's sizes and storage dtype "   \
    "(InPlaceAutograd.cpp).")                                                                     \
  _(KeepsOperand,                                                                                 \
    "In place: the stock formula keeps the operand, which is copied before the write.")           \
  _(SumsInDtype,                                                                                  \
    "An argument dtype= casts the operand first, so that its gradient comes back "                \
    "(MixedAutograd.cpp).")                                                                       \
  _(MixedByCasts,                                                                                 \
    "Operands of several dtypes are cast, because the stock formula promotes by the storage "     \
    "dtype.")                                                                                     \
  _(ComplexNumber, "With a complex number the gradient is brought back to a real dtype.")         \
  _(TangentsByCasts,                                                                              \
    "Tangents of one operand are computed by casts: the stock formula misreads the storage "      \
    "dtype or rounds terms that cancel.")
#define TD_FORALL_VMAP_FACTS(_)                                                                   \
  _(VmapByCasts,                                                                                  \
    "Runs by casts: stock code is composite there, or its batching rule makes tensors of the "    \
    "storage dtype.")                                                                             \
  _(VmapPairs,                                                                                    \
    "Two tensors are combined in float64: the batching rule casts one without dimensions to "     \
    "the storage dtype.")                                                                         \
  _(VmapTo,                                                                                       \
    "Runs the package's kernel at once: stock code decomposes it and compares storage dtypes.")   \
  _(VmapWhere, "Encodes its number, which stock code turns into a tensor of the storage dtype.")  \
  _(VmapDropout,                                                                                  \
    "Draws its noise in the compute dtype: stock composite code draws it in the storage "         \
    "dtype.")
// clang-format on

#define TD_ENUMERATOR(name, sentence) name,
#define TD_COUNT(name, sentence) +1
#define TD_FORALL_FACT_GROUPS(_)      \
  _(Value, TD_FORALL_VALUE_FACTS)     \
  _(Operand, TD_FORALL_OPERAND_FACTS) \
  _(Write, TD_FORALL_WRITE_FACTS)     \
  _(Random, TD_FORALL_RANDOM_FACTS)   \
  _(Autograd, TD_FORALL_AUTOGRAD_FACTS) _(Vmap, TD_FORALL_VMAP_FACTS)

enum class Step : uint8_t { TD_FORALL_STEPS(TD_ENUMERATOR) };
inline constexpr size_t kSteps = 0 TD_FORALL_STEPS(TD_COUNT);

// The steps of a row, in order.
class Route {
 public:
  template <typename... Steps>
  constexpr explicit Route(Step first, Steps... rest)
      : steps_{first, rest...},
        count_(1 + sizeof...(rest)),
        set_((bit(first) | ... | bit(rest))) {}

  constexpr bool has(Step step) const { return (set_ & bit(step)) != 0; }
  constexpr const Step* begin() const { return steps_; }
  constexpr const Step* end() const { return steps_ + count_; }

 private:
  static constexpr uint32_t bit(Step step) { return uint32_t{1} << static_cast<unsigned>(step); }

  Step steps_[6];
  uint8_t count_;
  uint32_t set_;
};
static_assert(kSteps <= 32);

// Notation of a row: Steps(PolicyProducts, TensorCores, Boxed).
template <typename... S>
constexpr Route Steps(S... steps) {
  return Route(steps...);
}

namespace fact {
#define TD_GROUP(Group, list)                         \
  enum class Group : uint8_t { list(TD_ENUMERATOR) }; \
  using enum Group;                                   \
  inline constexpr size_t kCount##Group = 0 list(TD_COUNT);
TD_FORALL_FACT_GROUPS(TD_GROUP)
#undef TD_GROUP

// The index of a fact among all facts.
constexpr size_t place_of(Value f) {
  return static_cast<size_t>(f);
}
constexpr size_t place_of(Operand f) {
  return kCountValue + static_cast<size_t>(f);
}
constexpr size_t place_of(Write f) {
  return kCountValue + kCountOperand + static_cast<size_t>(f);
}
constexpr size_t place_of(Random f) {
  return place_of(Write{}) + kCountWrite + static_cast<size_t>(f);
}
constexpr size_t place_of(Autograd f) {
  return place_of(Random{}) + kCountRandom + static_cast<size_t>(f);
}
constexpr size_t place_of(Vmap f) {
  return place_of(Autograd{}) + kCountAutograd + static_cast<size_t>(f);
}
inline constexpr size_t kCount = place_of(Vmap{}) + kCountVmap;
static_assert(kCount <= 64);

// A set of facts, of any groups.
class Set {
 public:
  constexpr Set() = default;
  template <typename Fact>
    requires requires(Fact f) { place_of(f); }
  constexpr Set(Fact f)
      : bits_(uint64_t{1} << place_of(f)) {} // NOLINT(google-explicit-constructor)

  constexpr bool has_any(Set other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool has_place(size_t place) const { return (bits_ >> place & 1) != 0; }
  friend constexpr Set operator|(Set a, Set b) {
    Set both;
    both.bits_ = a.bits_ | b.bits_;
    return both;
  }

 private:
  uint64_t bits_{0};
};

template <typename A, typename B>
  requires requires(A a, B b) { place_of(a), place_of(b); }
constexpr Set operator|(A a, B b) {
  return Set(a) | Set(b);
}
} // namespace fact

struct OperatorFacts {
  // Without namespace and the underscore of in-place operators. With the overload, if that has its
  // own row.
  std::string_view name;
  Route route;
  fact::Set facts;
  std::string_view detail; // the arguments that hold numbers, or why an operator is refused
  const ProductKernels* products; // for the steps PolicyProducts and TensorCores

  constexpr OperatorFacts(std::string_view name, Route route, fact::Set facts = {},
                          std::string_view detail = {})
      : name(name),
        route(route),
        facts(facts),
        detail(detail),
        products(nullptr) {}
  constexpr OperatorFacts(std::string_view name, Route route, fact::Set facts,
                          const ProductKernels& products)
      : name(name),
        route(route),
        facts(facts),
        products(&products) {}
};

// The name without namespace and the underscore of in-place operators: "tanh" for "aten::tanh_".
std::string base_name(std::string_view name);

// The row of a schema's name ("aten::index_put_") and overload: the overload's own (also for its
// out= variant), else its operator's, else a row without facts.
const OperatorFacts& operator_facts(std::string_view name, std::string_view overload);

// All rows in the order of their names.
struct OperatorRows {
  const OperatorFacts* first;
  size_t count;
  const OperatorFacts* begin() const { return first; }
  const OperatorFacts* end() const { return first + count; }
};
OperatorRows operator_rows();

// A word of the table: its group ("Step", or a group of facts), its name and its sentence.
struct OperatorWord {
  std::string_view group, name, sentence;
};
const OperatorWord& word_of(Step step);
const OperatorWord& word_of_fact(size_t place);

} // namespace at::formats
