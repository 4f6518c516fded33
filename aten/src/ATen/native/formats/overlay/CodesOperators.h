// Operators on codes, for graphs of functions in our dtypes (torch_dtypes/compiling/).
#pragma once
#include <string>
#include <vector>

namespace at::formats {

// Defines the operator `torch_dtypes_codes::label` by its schema, for as long as the process lives: JIT, which keeps a list of operators, ends a
// process that takes back several overloads of one at exit. Its kernel is the stock operator of that name and overload on tensors of ours over the
// same codes. It takes the stock operator's arguments, codes in the place of tensors of ours and perhaps numbers in that of tensors,
// and last the names of all tensors' formats, with a comma between and "-" for stock tensors, and ",exact" behind where a dtype among the arguments
// means itself and not the tensor's own. It returns the results one by one, and then copies of the arguments in the places `written`, as the stock
// operator leaves them.
void register_codes_operator(const std::string& label, const std::string& schema, bool draws, const std::string& stock, const std::string& overload,
                             std::vector<size_t> written);

} // namespace at::formats
