// A program with PyTorch's headers and without its libraries: names of types are there, but formats
// made at run time are not.
#include <torch/headeronly/core/ScalarType.h>

#include <cstdio>
#include <cstring>

int main() {
  const bool named = std::strcmp(c10::toString(c10::ScalarType::Posit16es2), "Posit16es2") == 0;
  const bool unknown =
      std::strcmp(c10::toString(static_cast<c10::ScalarType>(64)), "UNKNOWN_SCALAR") == 0;
  if (!named || !unknown) std::fputs("expected Posit16es2 and UNKNOWN_SCALAR\n", stderr);
  return !named || !unknown;
}
