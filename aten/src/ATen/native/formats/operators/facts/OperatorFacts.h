// What this package knows of PyTorch's operators: one table, one row each. What happens to `cat`? Its row in OperatorFacts.cpp says so.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace at::formats {

// How an operator gets its result. One without a row: Boxed, or Composite where stock PyTorch has composite code for all backends.
enum class Way : uint8_t {
  Boxed,     // decode, the stock kernel, encode: Boxed.cpp
  Codes,     // the stock kernel moves the codes, as integers; boxed where numbers have to be converted: MovedCodes.cpp
  Own,       // a kernel of ours, at least for one overload; boxed for those without
  View,      // the same, where memory is shared: Views.cpp. (Views made through as_strided need no row.)
  Loop,      // over lists of tensors, by single operators: Foreach.cpp
  Composite, // stock's composite code, by operators that have rows of their own
  Checked,   // the same, after a look at the operands' dtypes: OperandRules.cpp
  Whole,     // boxed, though stock has composite code: that would decide something by the container
  Refused,   // an error, with the reason that the row gives: Refusals.cpp
};

// Facts of a row: the name of each and what it says.
// clang-format off
#define TD_FORALL_FACTS(_)                                                                                                 \
  /* values */                                                                                                             \
  _(Selects)         /* results are values of the operands, their negatives or numbers that the caller gave; so of Codes */ \
  _(Gates)           /* values of the first operand where the second's exceed a number, else zeros: a GPU's codes by themselves */ \
  _(PutsZeros)       /* and zeros, which codes stand for only where code 0 is 0 */                                         \
  _(Elementary)      /* InFloat64 and Tabled */                                                                            \
  _(InFloat64)       /* computed in float64, whatever the format */                                                        \
  _(Tabled)          /* narrow formats look results up */                                                                  \
  _(LeavesRange)     /* results may leave float64's range where the function has no pole */                                \
  _(ComesNear)       /* of numbers that it does not reach: c10/formats/arithmetic/FunctionEnds.h */                                   \
  _(LargerDecides)   /* of two operands the larger one tells which have, and zeros alone count */                          \
  _(Powers)          /* so do a base, or a factor, and an exponent, each of any dtype or a number */                       \
  _(NegativeZeros)   /* results that have become 0 were negative */                                                        \
  _(Products)        /* adds up products or values: the accumulation policy says how */                                    \
  _(FusedProducts)   /* the same within a stock kernel that obeys no policy of our own */                                  \
  _(MultipliesWithin) /* matrices of numbers that it has made itself, in the machine's type */                             \
  /* operands */                                                                                                           \
  _(Finite)          /* stock code reads beyond memory where the first operand has an infinity or NaN: an error */           \
  _(OneDtype)        /* floating operands of several dtypes are an error, integers too, but indices and masks */            \
  _(OneFloatingDtype) /* the same, beside integers that are indices or masks */                                            \
  _(WeightNumber)    /* the same, but a weight without dimensions is of any dtype */                                        \
  _(AnyWeight)       /* arguments weight and pos_weight say nothing of the result's dtype */                                \
  _(AnyTarget)       /* argument target, of ones and minus ones, says nothing of the result's dtype */                     \
  _(Normalisation)   /* the same, but for float32 parameters beside an input of ours */                                    \
  _(NumbersMultiply) /* operands without dimensions multiply as elements do, whatever their dtypes */                      \
  _(Contraction)     /* under some policies as one matrix product */                                                       \
  _(KeepsFirst)      /* the result has the first operand's dtype, whatever is put into it */                               \
  _(Internal)        /* stock code alone calls it: what that makes beside our operands has the container's dtype */        \
  _(FirstAlone)      /* of the results the first alone is rounded: others are kept for the derivative, as normalisation's are */\
  _(CastsOut)        /* out= of another dtype gets the rounded result: OutDtypes.h */                                       \
  _(OneDtypeOut)     /* out= of another dtype is an error */                                                               \
  _(Puts)            /* puts the numbers in the arguments named by the row into a tensor: FillInfinity.h */                \
  _(Compares)        /* holds a tensor's elements against them */                                                          \
  /* what is written: TouchedElements.h */                                                                                 \
  _(TouchesLines)                                                                                                          \
  _(TouchesElements)                                                                                                       \
  _(TouchesPlaces)                                                                                                         \
  _(TouchesIndexed)                                                                                                        \
  _(TouchesRows)                                                                                                           \
  /* random numbers */                                                                                                     \
  _(Draws)           /* though it has no argument `generator`, which says so elsewhere */                                  \
  _(Fills)           /* of the first operand sizes and strides alone count */                                              \
  _(FillsInPlace)    /* so for the in-place operator */                                                                    \
  _(BelowOne)        /* draws from [0, 1): nothing is rounded up */                                                        \
  _(Interval)        /* draws from [from, to), its arguments: nothing is rounded to an end that the format has */          \
  _(Integers)        /* draws integers of a range, in which what is rounded stays: DrawnIntegers.h */                       \
  _(Positive)        /* draws positive numbers: nothing is rounded to 0 */                                                 \
  /* autograd */                                                                                                           \
  _(ByCasts)         /* recorded as casts around the stock operator, whose derivative or composite code goes by the container: Boxed.cpp */ \
  _(RoundsOnce)      /* composite, and computed whole, rounded once; by operators one by one where is_composed(), in Plan.h */\
  _(KeepsLittle)     /* in place: the stock formula makes a gradient of the operand's sizes and container: InPlaceAutograd.cpp */ \
  _(KeepsOperand)    /* in place: the formula keeps what is written to */                                                  \
  _(SumsInDtype)     /* with dtype=: the operand is cast first, for its gradient: MixedAutograd.cpp */                     \
  _(MixedByCasts)    /* several dtypes: the formula promotes by the container */                                           \
  _(ComplexNumber)   /* with a complex number: the gradient comes back to a real dtype */                                  \
  _(TangentsByCasts) /* of one operand: the formula for tangents misreads the container or rounds what should cancel */    \
  /* torch.func: Vmap.cpp */                                                                                               \
  _(VmapByCasts)     /* composite there, or a batching rule that makes zeros, ones or statistics of the container */       \
  _(VmapPairs)       /* of two tensors: a batching rule that converts the one without dimensions to the container */       \
  _(VmapTo)          /* decomposed there into code that compares dtypes by the container */                                \
  _(VmapWhere)       /* makes a tensor of a number there, of the container's dtype */                                      \
  _(VmapDropout)     /* composite there, with noise of the container's dtype */
// clang-format on

namespace fact {
#define TD_PLACE(name) name##Place,
enum Place : uint8_t { TD_FORALL_FACTS(TD_PLACE) kCount };
#undef TD_PLACE
static_assert(kCount <= 64);
#define TD_FLAG(name) inline constexpr uint64_t name = uint64_t{1} << name##Place;
TD_FORALL_FACTS(TD_FLAG)
#undef TD_FLAG
} // namespace fact

struct OperatorFacts {
  std::string_view name; // without namespace and without the underscore of in-place operators; with its overload where that differs from the others
  Way way;
  uint64_t facts;
  std::string_view detail{}; // the arguments that hold numbers, or why an operator is refused
};

// The name without namespace and without the underscore of in-place operators: "tanh" of "aten::tanh_".
std::string base_name(std::string_view name);

// The row of a schema's name ("aten::index_put_") and overload: the overload's own (also for its out= variant), else its operator's, else a
// row without facts.
const OperatorFacts& operator_facts(std::string_view name, std::string_view overload);

// All rows in the order of their names.
struct OperatorRows {
  const OperatorFacts* first;
  size_t count;
  const OperatorFacts* begin() const { return first; }
  const OperatorFacts* end() const { return first + count; }
};
OperatorRows operator_rows();

std::string_view name_of(Way way);
// By place in the list above.
std::string_view name_of_fact(size_t place);

} // namespace at::formats
