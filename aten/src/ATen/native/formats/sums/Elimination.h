// Factorisations and substitution whose every product, difference, quotient and root is rounded to
// the operands' format. Element (i, j) is a_ij - l_i0 u_0j - l_i1 u_1j - ..., from left to right.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// LU: A = L U. Cholesky: A = L L^T. LDL: A = L D L^T; its terms are l_ik c_jk, where c_jk is l_jk
// before its division by d_k. The last two read the lower triangle.
enum class Elimination : uint8_t { LU, Cholesky, LDL };
enum class Pivot : uint8_t { None, Partial, Complete };

// A random mode draws one word for each rounding, of one seed for the call: word
// (3 k + r) * elements + place for the element at `place` in memory, when column k is eliminated. r
// is 0 for a product, 1 for a difference, 2 for a quotient or a root.

// Factorises matrices in place, on the CPU, in a format with arithmetic_in_double(). columns:
// [batch, n, m], contiguous, the transposed matrices. rows: [batch, m] and order: [batch, n],
// int64, are exchanged with the matrices' rows and columns. A column with a pivot of 0 is not
// divided; Cholesky stops at a pivot that is not positive.
void eliminate(const at::Tensor& columns, const at::Tensor& rows, const at::Tensor& order,
               Elimination kind, Pivot pivot);

// Solves a x = b for lower triangles, in place of the right sides. columns: [batch, n, n], the
// transposed triangles; right: [batch, r, n], contiguous. unit: the diagonal counts as 1.
void substitute(const at::Tensor& columns, const at::Tensor& right, bool unit);

} // namespace at::formats
