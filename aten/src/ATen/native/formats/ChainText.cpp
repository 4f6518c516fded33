// A chain as a graph's text has it.
#include <ATen/native/formats/Chain.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace at::formats {

static constexpr std::array<std::pair<const char*, ChainDo>, 7> kNames{{{"add", ChainDo::Add},
                                                                        {"sub", ChainDo::Sub},
                                                                        {"mul", ChainDo::Mul},
                                                                        {"div", ChainDo::Div},
                                                                        {"sqrt", ChainDo::Sqrt},
                                                                        {"look_up", ChainDo::LookUp},
                                                                        {"look_up_pair", ChainDo::LookUpPair}}};

Chain Chain::parse(const std::string& text) {
  Chain chain;
  std::istringstream parts(text);
  std::string part, word;
  std::getline(parts, part, ';');
  std::istringstream(part) >> chain.format >> word >> chain.operands;
  TORCH_CHECK_VALUE(word == "of" && chain.operands > 0, "chain: expected a format and how many operands, but got '", part, "'");
  const auto value = [&](std::istringstream& in) {
    int v = -1;
    in >> v;
    TORCH_CHECK_VALUE(in && v >= 0 && v < chain.operands + static_cast<int>(chain.steps.size()),
                      "chain: expected a value that is known by then, but got '", part, "'");
    return v;
  };
  while (std::getline(parts, part, ';')) {
    std::istringstream in(part);
    in >> word;
    if (word == "give") {
      while (in >> std::ws && !in.eof()) chain.results.push_back(value(in));
      continue;
    }
    const auto* found = std::find_if(kNames.begin(), kNames.end(), [&](const auto& row) { return word == row.first; });
    TORCH_CHECK_VALUE(found != kNames.end(), "chain: expected a step, but got '", part, "'");
    ChainStep step{.what = found->second, .a = ChainStep::kNone};
    const auto operand = [&] {
      if ((in >> std::ws).peek() != '#') return value(in);
      in >> word;
      step.number = std::strtod(word.c_str() + 1, nullptr); // of hexadecimal digits, too
      return ChainStep::kNumber;
    };
    const bool looks_up = step.what == ChainDo::LookUp || step.what == ChainDo::LookUpPair;
    step.a = looks_up ? value(in) : operand();
    if (step.what != ChainDo::Sqrt && step.what != ChainDo::LookUp) step.b = looks_up ? value(in) : operand();
    if (looks_up) in >> step.table;
    TORCH_CHECK_VALUE(in && step.table >= 0 && (step.a >= 0 || step.b >= 0), "chain: expected a step's operands, but got '", part, "'");
    chain.steps.push_back(step);
  }
  for (const int r : chain.results) {
    TORCH_CHECK_VALUE(r >= chain.operands && std::count(chain.results.begin(), chain.results.end(), r) == 1,
                      "chain: expected steps' results, each once, but got ", r);
  }
  return chain;
}

} // namespace at::formats
