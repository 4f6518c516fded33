// The dispatch macros and the C++ number types, without PyTorch: every built-in format dispatches
// to its own type, any other raises.
#include <ATen/FormatDispatch.h>

#include <cstdio>
#include <cstdlib>

namespace f = c10::formats;

#define EXPECT(condition)                                                \
  if (!(condition)) {                                                    \
    std::printf("%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
    std::exit(1);                                                        \
  }

template <typename Call>
bool throws(Call call) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

int main() {
  int posits = 0, floats = 0;
  for (const f::BuiltinFormat& b : f::kBuiltinFormats) {
    const auto same = [&]<typename scalar_t>() {
      EXPECT(scalar_t::format == b.format);
      EXPECT(sizeof(scalar_t) == size_t(b.format.itemsize()));
      EXPECT(double(scalar_t(1.0)) == 1.0 && double(scalar_t(-2.0)) == -2.0);
      return 1;
    };
    if (b.format.is_posit()) {
      posits += AT_DISPATCH_POSIT_TYPES(b.format, "test", same);
      EXPECT(throws([&] { AT_DISPATCH_CUSTOM_FLOAT_TYPES(b.format, "test", same); }));
    } else {
      floats += AT_DISPATCH_CUSTOM_FLOAT_TYPES(b.format, "test", same);
      EXPECT(throws([&] { AT_DISPATCH_POSIT_TYPES(b.format, "test", same); }));
    }
  }
  EXPECT(posits > 0 && floats > 0 && posits + floats == int(f::Builtin::kCount));
  const f::Format made = f::float_format(5, 6);
  EXPECT(throws([&] { AT_DISPATCH_CUSTOM_FLOAT_TYPES(made, "test", []<typename scalar_t>() {}); }));
  EXPECT(throws(
      [&] { AT_DISPATCH_POSIT_TYPES(f::Builtin::kNone, "test", []<typename scalar_t>() {}); }));
  std::printf("%d formats dispatched\n", posits + floats);
}
