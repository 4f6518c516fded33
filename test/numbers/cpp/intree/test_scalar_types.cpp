// The formats as types of PyTorch's own list, in a program that compiles against edited headers and
// links a libc10. With a wheel's unedited libc10 it uses the headers and this project's sources.
// With one built from an edited tree (TD_EDITED_LIBC10) it uses all of it.
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/NumericUtils.h>
#include <ATen/OpMathType.h>
#include <c10/core/DynamicCast.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/TensorOptions.h>
#include <c10/formats/FormatRegistry.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace {

int failures = 0;
[[maybe_unused]] std::string announced; // the text that the registry passed to TypeMeta

template <typename A, typename B>
void expect_equal(const A& got, const B& wanted, const char* what, int line) {
  if (got == wanted) return;
  std::fprintf(stderr, "line %d: %s\n", line, what);
  ++failures;
}
#define EXPECT_EQ(got, wanted) expect_equal(got, wanted, #got " is not " #wanted, __LINE__)

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

} // namespace

#ifndef TD_EDITED_LIBC10 // the edited libc10 has its own
void caffe2::TypeMeta::addFormat(c10::ScalarType type, size_t itemsize, const char* name) {
  announced +=
      std::to_string(static_cast<int>(type)) + ":" + std::to_string(itemsize) + ":" + name + " ";
}
#endif

namespace {

void test_enumerators() {
  static_assert(at::kPosit16es2 == c10::ScalarType::Posit16es2);
  static_assert(c10::CppTypeToScalarType<c10::posit16es2>::value == at::kPosit16es2);
  static_assert(std::is_same_v<c10::impl::ScalarTypeToCPPTypeT<at::kE5m7>, c10::e5m7>);
  static_assert(static_cast<int>(at::kE8m4) + 1 == static_cast<int>(c10::ScalarType::Undefined));
  static_assert(sizeof(c10::posit8es1) == 1 && sizeof(c10::e5m5) == 2 && sizeof(c10::tf32) == 4);
  EXPECT_EQ(std::string(c10::toString(at::kPosit16es2)), "Posit16es2");
  EXPECT_EQ(c10::elementSize(at::kPosit8es1), 1u);
  EXPECT_EQ(c10::elementSize(at::kPosit16es2), 2u);
  EXPECT_EQ(c10::elementSize(at::kTf32), 4u);
  EXPECT_EQ(std::string(c10::formats::dtype_name(at::kQ43)), "q43");
#ifdef TD_EDITED_LIBC10
  EXPECT_EQ(c10::getDtypeNames(at::kPosit16es2).first, "posit16es2");
  EXPECT_EQ(c10::getStringToDtypeMap().at("e5m7"), at::kE5m7);
  EXPECT_EQ(std::string(c10::scalarTypeToTypeMeta(at::kPosit32es2).name()), "Posit32es2");
#endif
}

void test_categories() {
  int formats = 0;
  for (int number = 0; number < static_cast<int>(c10::ScalarType::Undefined); ++number) {
    const auto type = static_cast<c10::ScalarType>(number);
    if (!c10::formats::is_format_type(type)) continue;
    ++formats;
    EXPECT_EQ(c10::isFloatingType(type), true);
    EXPECT_EQ(c10::isReducedFloatingType(type) || c10::isIntegralType(type, true) ||
                  c10::isComplexType(type) || c10::isQIntType(type),
              false);
    EXPECT_EQ(c10::isSignedType(type), true);
    EXPECT_EQ(c10::canCast(type, at::kLong), false);
    EXPECT_EQ(c10::formats::scalar_type(c10::formats::format_entry(type)), type);
  }
  EXPECT_EQ(formats, 12);
  EXPECT_EQ(c10::isFloatingType(at::kBits8) || c10::formats::is_format_type(at::kBFloat16), false);
  EXPECT_EQ(c10::formats::is_format_type(c10::ScalarType::Undefined), false);
}

void test_promotion() {
#ifdef TD_EDITED_LIBC10
  const auto promote_types = c10::promoteTypes;
  EXPECT_EQ(promote_types(at::kPosit16es2, c10::ScalarType::Undefined), c10::ScalarType::Undefined);
  EXPECT_EQ(
      error_of([&] { promote_types(at::kQInt8, at::kQ52); }).find("quantized") != std::string::npos,
      true);
  EXPECT_EQ(promote_types(at::kHalf, at::kBFloat16), at::kFloat); // unchanged
#else
  const auto promote_types = c10::formats::promote_types;
#endif
  EXPECT_EQ(promote_types(at::kPosit16es2, at::kPosit16es2), at::kPosit16es2);
  EXPECT_EQ(promote_types(at::kPosit16es2, at::kLong), at::kPosit16es2);
  EXPECT_EQ(promote_types(at::kBool, at::kQ52), at::kQ52);
  EXPECT_EQ(promote_types(at::kQ52, at::kUInt16), at::kQ52);
  EXPECT_EQ(promote_types(at::kPosit16es2, at::kBFloat16), at::kFloat);
  EXPECT_EQ(promote_types(at::kDouble, at::kPosit16es2), at::kDouble);
  EXPECT_EQ(promote_types(at::kComplexFloat, at::kPosit32es2), at::kComplexDouble);
  const std::string error = error_of([&] { promote_types(at::kPosit16es2, at::kQ43); });
  EXPECT_EQ(error,
            "expected dtypes that promote to one, but got two number formats, torch.posit16es2 and "
            "torch.q43. Convert one tensor first.");
}

void test_scalars() {
  EXPECT_EQ(c10::Scalar(1.2).toPosit16es2().code, 0x419a); // 1 + 410 / 2048
  EXPECT_EQ(c10::Scalar(-1.0).to<c10::posit8es0>().code, 0xc0);
  EXPECT_EQ(c10::Scalar(int64_t{3}).toQ43().code, 0x44);
  EXPECT_EQ(c10::Scalar(true).toE5m7().code, 0x0780);
  const c10::Scalar back(c10::Scalar(1.2).toPosit16es2());
  EXPECT_EQ(back.toDouble(), 1.2001953125);
  EXPECT_EQ(back.isFloatingPoint(), true);
  EXPECT_EQ(std::isnan(static_cast<double>(c10::Scalar(std::nan("")).toPosit16es2())), true); // NaR
  EXPECT_EQ(static_cast<double>(c10::Scalar(HUGE_VAL).toQ52()), HUGE_VAL);
  // posit32es2 has 12 fraction bits at 2^60. This is one above the middle of two values. A detour
  // over float64 would give the middle, which rounds to even.
  const int64_t above = (int64_t{1} << 60) + (int64_t{1} << 47) + 1;
  EXPECT_EQ(static_cast<double>(static_cast<c10::posit32es2>(above)),
            std::ldexp(1.0, 60) + std::ldexp(1.0, 48));
  const std::string error = error_of([] { static_cast<void>(c10::Scalar(1e6).toQ52()); });
  EXPECT_EQ(error.find("without overflow") != std::string::npos, true); // as for bfloat16
}

void test_conversions() {
  const auto x = c10::posit16es2(1.5);
  EXPECT_EQ(c10::convert<float>(x), 1.5f);
  EXPECT_EQ(c10::convert<bool>(x), true);
  EXPECT_EQ(c10::convert<uint8_t>(c10::posit16es2(-1)), 255);
  EXPECT_EQ(c10::convert<c10::posit8es0>(x).code, 0x50);
  EXPECT_EQ(c10::convert<c10::complex<float>>(x), (c10::complex<float>(1.5f, 0)));
  EXPECT_EQ(static_cast<float>(c10::convert<c10::complex<c10::Half>>(x).real()), 1.5f);
  EXPECT_EQ(c10::convert<c10::posit16es2>(c10::complex<double>(1.5, 0)).code, x.code);
  EXPECT_EQ(c10::convert<c10::posit16es2>(c10::Half(1.5f)).code, x.code);
  // 1 + 2^-8 + 2^-27 is a posit32es2 just above the middle of two bfloat16. A detour over float32
  // would round it down to 1.
  const auto near_middle = c10::posit32es2(1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -27));
  EXPECT_EQ(static_cast<float>(c10::convert<c10::BFloat16>(near_middle)), 1.0078125f);
  EXPECT_EQ(c10::fetch_and_cast<float>(at::kPosit16es2, &x), 1.5f);
  c10::e5m7 stored;
  c10::cast_and_store<double>(at::kE5m7, &stored, 1.5);
  EXPECT_EQ(static_cast<double>(stored), 1.5);
}

void test_dispatch() {
  const auto size = [](c10::ScalarType type) {
    return AT_DISPATCH_V2(type, "size", AT_WRAP([] { return sizeof(scalar_t); }), at::kFloat,
                          AT_FORMAT_SCALAR_TYPES);
  };
  EXPECT_EQ(size(at::kPosit16es2), 2u);
  EXPECT_EQ(size(at::kPosit32es2), 4u);
  const auto value = [](c10::ScalarType type) {
    return AT_DISPATCH_FLOATING_TYPES_AND2(at::kQ43, at::kPosit8es2, type, "value",
                                           [] { return static_cast<double>(scalar_t(0.3)); });
  };
  EXPECT_EQ(value(at::kQ43), 0.3125);
  EXPECT_EQ(value(at::kDouble), 0.3);
  EXPECT_EQ(error_of([&] { value(at::kQ52); }).find("\"value\" not implemented for 'Q52'") !=
                std::string::npos,
            true);
  static_assert(std::is_same_v<at::opmath_type<c10::posit16es2>, float> &&
                std::is_same_v<at::opmath_type<c10::posit32es2>, double>);
  static_assert(std::is_same_v<at::acc_type<c10::q43, false>, double>);
  EXPECT_EQ(at::toOpMathType(at::kPosit16es2), at::kFloat);
  EXPECT_EQ(at::_isnan(c10::posit16es2(std::nan(""))) && at::_isinf(c10::q52(HUGE_VAL)) &&
                !at::_isinf(c10::posit8es0(1e9)),
            true);
}

void test_limits() {
  using posit = std::numeric_limits<c10::posit16es2>;
  using small = std::numeric_limits<c10::q43>;
  EXPECT_EQ(static_cast<double>(posit::max()), std::ldexp(1.0, 56));
  EXPECT_EQ(static_cast<double>(posit::lowest()), -std::ldexp(1.0, 56));
  EXPECT_EQ(static_cast<double>(posit::min()), std::ldexp(1.0, -56));
  EXPECT_EQ(static_cast<double>(posit::epsilon()), std::ldexp(1.0, -11));
  EXPECT_EQ(static_cast<double>(small::max()), 240.0);
  EXPECT_EQ(static_cast<double>(small::infinity()), HUGE_VAL);
  EXPECT_EQ(c10::formats::finfo(at::kPosit16es2, "max"), std::ldexp(1.0, 56));
  EXPECT_EQ(c10::formats::finfo(at::kQ43, "lowest"), -240.0);
  EXPECT_EQ(c10::formats::finfo(at::kQ43, "min"), std::ldexp(1.0, -6));
  EXPECT_EQ(c10::formats::finfo(at::kE5m7, "epsilon"), std::ldexp(1.0, -7));
  EXPECT_EQ(c10::formats::finfo(at::kE5m7, "digits10"), 0.01);
  static_assert(!posit::has_infinity && small::has_infinity && posit::digits == 12 &&
                small::digits == 4);
}

void test_type_meta_and_options() {
  EXPECT_EQ(caffe2::TypeMeta::Make<c10::posit16es2>(), c10::scalarTypeToTypeMeta(at::kPosit16es2));
  EXPECT_EQ(c10::scalarTypeToTypeMeta(at::kPosit16es2).itemsize(), 2u);
  EXPECT_EQ(c10::scalarTypeToTypeMeta(at::kPosit16es2).toScalarType(), at::kPosit16es2);
  const auto options = c10::TensorOptions().dtype(at::kPosit16es2);
  EXPECT_EQ(c10::typeMetaToScalarType(options.dtype()), at::kPosit16es2);
  EXPECT_EQ(options.computeDispatchKey(), c10::DispatchKey::PrivateUse2);
  EXPECT_EQ(options.dtype(at::kBFloat16).computeDispatchKey(), c10::DispatchKey::CPU);
  EXPECT_EQ(options.backend(), at::Backend::CPU);
  EXPECT_EQ(options.device(at::kCUDA).backend(), at::Backend::CUDA);
}

void test_formats_made_at_run_time() {
  using namespace c10::formats;
  EXPECT_EQ(format_count(), 12);
  EXPECT_EQ(announced, ""); // built-in ones are in TypeMeta's own table
  const auto type = scalar_type(register_format(posit_format(12, 1), "posit12es1"));
  EXPECT_EQ(static_cast<int>(type), 64);
#ifdef TD_EDITED_LIBC10
  const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(type);
  EXPECT_EQ(meta.itemsize(), 2u);
  EXPECT_EQ(std::string(meta.name()), "posit12es1");
  EXPECT_EQ(meta.isScalarType() && !caffe2::TypeMeta::Make<std::string>().isScalarType(), true);
  EXPECT_EQ(c10::getDtypeNames(type).first, "posit12es1");
#else
  EXPECT_EQ(announced, "64:2:posit12es1 ");
#endif
  const auto count = scalar_type(register_format(fixed_format(4, 4, false), "ufixed4_4"));
  EXPECT_EQ(std::string(c10::toString(type)), "posit12es1");
  EXPECT_EQ(c10::elementSize(type) * 10 + c10::elementSize(count), 21u);
  EXPECT_EQ(c10::isFloatingType(type) && c10::isSignedType(type) && !c10::isSignedType(count),
            true);
  EXPECT_EQ(promote_types(type, at::kInt), type);
  EXPECT_EQ(c10::scalarTypeToTypeMeta(type).toScalarType(), type);
  EXPECT_EQ(c10::TensorOptions().dtype(type).computeDispatchKey(), c10::DispatchKey::PrivateUse2);
  EXPECT_EQ(std::string(c10::toString(static_cast<c10::ScalarType>(66))), "UNKNOWN_SCALAR");
  uint16_t memory = 0;
  store_element(&memory, type, -1.5);
  EXPECT_EQ(load_element(&memory, type), -1.5);
  EXPECT_EQ(&register_format(kBuiltinFormats[4].format, "another name"),
            &format_entry(at::kPosit16es2));
  for (int es = 0; es < 4; ++es) {
    for (int bits = 13; bits < 29; ++bits) {
      if (format_count() < kMaxFormats)
        register_format(posit_format(bits, es),
                        "posit" + std::to_string(bits) + "es" + std::to_string(es));
    }
  }
  EXPECT_EQ(format_count(), 76);
  EXPECT_EQ(static_cast<int>(format_entry(75).container), 127);
  EXPECT_EQ(error_of([] {
              register_format(posit_format(30, 3), "posit30es3");
            }).find("at most 64 number formats") != std::string::npos,
            true);
}

} // namespace

int main() {
  test_enumerators();
  test_categories();
  test_promotion();
  test_scalars();
  test_conversions();
  test_dispatch();
  test_limits();
  test_type_meta_and_options();
  test_formats_made_at_run_time();
  if (failures == 0) std::puts("ok");
  return failures != 0;
}
