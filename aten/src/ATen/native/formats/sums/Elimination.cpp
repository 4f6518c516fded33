#include <ATen/native/formats/sums/Elimination.h>

#include <ATen/FormatTensor.h>
#include <ATen/Parallel.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/sums/DotProducts.h>
#include <ATen/native/formats/sums/StepSums.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace at::formats {
namespace {

// Rounded steps of one format on rows of machine numbers. Random words are numbered by the step and
// by the element's place, so threads do not change them.
template <typename T>
class RoundedRows {
 public:
  struct Setting {
    const CpuKernels& kernels;
    Format format;
    Recorder seen;
    Seed seed;
    uint64_t elements; // of the whole call
  };
  explicit RoundedRows(const Setting& setting) : s_(setting) {}

  // row -= factor * other. step: 0, 1, ... in the order of the row's subtractions.
  void subtract(T* row, T factor, const T* other, int64_t n, int64_t step, uint64_t place) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t m = std::min(kLanes, n - i);
      T* sums = row + i;
      std::fill_n(second_, m, factor);
      s_.kernels.binary(BinaryOp::Mul, second_, other + i, exact_, m);
      round(second_, m, 3 * step, place + i);
      s_.kernels.binary(BinaryOp::Sub, sums, second_, exact_, m);
      c10::formats::sign_zero_sums(s_.format.rounding, exact_, m, [&](int64_t lane) {
        return !std::signbit(sums[lane]) && std::signbit(second_[lane]);
      });
      round(sums, m, 3 * step + 1, place + i);
    }
  }

  void divide(T* row, T divisor, int64_t n, int64_t step, uint64_t place) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t m = std::min(kLanes, n - i);
      std::fill_n(second_, m, divisor);
      s_.kernels.binary(BinaryOp::Div, row + i, second_, exact_, m);
      round(row + i, m, 3 * step + 2, place + i);
    }
  }

  void take_root(T* number, int64_t step, uint64_t place) {
    s_.kernels.unary(UnaryOp::Sqrt, number, exact_, 1);
    round(number, 1, 3 * step + 2, place);
  }

 private:
  // Rounds exact_ into `out`.
  void round(T* out, int64_t n, uint64_t step, uint64_t place) {
    if (c10::formats::is_stochastic(s_.format.rounding) ||
        !s_.kernels.round(s_.format, exact_, out, n)) {
      s_.kernels.encode(s_.format, exact_, codes_, n, {s_.seed, step * s_.elements + place});
      s_.kernels.decode(s_.format, codes_, out, n);
    }
    if (s_.seen) s_.seen.values(exact_, out, n);
  }

  const Setting& s_;
  alignas(64) T exact_[kLanes], second_[kLanes];
  alignas(64) char codes_[kLanes * 8];
};

// One matrix, transposed: [n, m].
template <typename T>
struct Matrix {
  T* numbers;
  int64_t n, m;
  int64_t *rows, *order;
  uint64_t place; // of its first element among all

  T& at(int64_t row, int64_t column) const { return numbers[column * m + row]; }

  // The first number of the largest magnitude, row by row; NaN counts as the largest.
  void bring_pivot(int64_t k, Pivot pivot) const {
    if (pivot == Pivot::None) return;
    int64_t row = k, column = k;
    T best = std::abs(at(k, k));
    for (int64_t i = k; i < m; ++i) {
      for (int64_t j = k; j < (pivot == Pivot::Complete ? n : k + 1); ++j) {
        const T x = std::abs(at(i, j));
        if (std::isnan(best) || !(x > best || std::isnan(x))) continue;
        best = x;
        row = i;
        column = j;
      }
    }
    if (row != k) {
      for (int64_t j = 0; j < n; ++j) std::swap(at(k, j), at(row, j));
      std::swap(rows[k], rows[row]);
    }
    if (column != k) {
      std::swap_ranges(&at(0, k), &at(0, k) + m, &at(0, column));
      std::swap(order[k], order[column]);
    }
  }
};

constexpr int64_t kPanel = 32; // columns between two times that threads meet
constexpr int64_t kWorthAThread = 1 << 20; // terms: some milliseconds

// Panels of columns are factorised by one thread. The columns behind a panel then take its terms,
// in their order, each column by itself.
template <typename T>
void eliminate_one(const Matrix<T>& a, const typename RoundedRows<T>::Setting& setting,
                   Elimination kind, Pivot pivot) {
  const int64_t steps = std::min(a.n, a.m), width = pivot == Pivot::Complete ? 1 : kPanel;
  std::vector<T> undivided(width * a.m); // the panel's columns before their division
  const auto subtract = [&](RoundedRows<T>& rows, int64_t j, int64_t k, int64_t first) {
    const bool lu = kind == Elimination::LU;
    const int64_t from = lu ? k + 1 : j;
    const T factor = lu ? a.at(k, j) : undivided[(k - first) * a.m + j];
    rows.subtract(&a.at(0, j) + from, factor, &a.at(0, k) + from, a.m - from, k,
                  a.place + j * a.m + from);
  };
  RoundedRows<T> own(setting);
  for (int64_t first = 0; first < steps; first += width) {
    const int64_t last = std::min(first + width, steps);
    for (int64_t k = first; k < last; ++k) {
      a.bring_pivot(k, pivot);
      T *line = &a.at(0, k), *before = undivided.data() + (k - first) * a.m;
      const uint64_t place = a.place + k * a.m + k;
      if (kind == Elimination::Cholesky) {
        if (!(line[k] > 0)) return;
        own.take_root(line + k, k, place);
      }
      std::copy_n(line, a.m, before);
      if (line[k] != 0) own.divide(line + k + 1, line[k], a.m - k - 1, k, place + 1);
      if (kind == Elimination::Cholesky) std::copy_n(line, a.m, before);
      for (int64_t j = k + 1; j < last; ++j) subtract(own, j, k, first);
    }
    const int64_t work = (last - first) * (a.m - first);
    at::parallel_for(last, a.n, std::max<int64_t>(1, kWorthAThread / work),
                     [&](int64_t begin, int64_t end) {
                       RoundedRows<T> rows(setting);
                       for (int64_t j = begin; j < end; ++j) {
                         for (int64_t k = first; k < last; ++k) subtract(rows, j, k, first);
                       }
                     });
  }
}

template <typename T>
typename RoundedRows<T>::Setting setting_of(const FormatEntry& entry, c10::Device device,
                                            int64_t elements) {
  const Format f = rounding_format(entry);
  return {kernels(device, "factorisations"), f, step_recorder(f),
          c10::formats::is_stochastic(f.rounding) ? next_seed({}, device) : Seed(),
          static_cast<uint64_t>(elements)};
}

template <typename T>
void eliminate_all(const FormatEntry& entry, const at::Tensor& values, const at::Tensor& rows,
                   const at::Tensor& order, Elimination kind, Pivot pivot) {
  const int64_t n = values.size(1), m = values.size(2);
  const auto setting = setting_of<T>(entry, values.device(), values.numel());
  T* numbers = values.mutable_data_ptr<T>();
  int64_t *row = rows.mutable_data_ptr<int64_t>(), *column = order.mutable_data_ptr<int64_t>();
  // Several matrices have a thread each; a loop within a loop has one thread.
  at::parallel_for(0, values.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Matrix<T> a{
          numbers + i * n * m, n, m, row + i * m, column + i * n, static_cast<uint64_t>(i * n * m)};
      eliminate_one(a, setting, kind, pivot);
    }
  });
}

template <typename T>
void substitute_all(const FormatEntry& entry, const at::Tensor& triangles, const at::Tensor& values,
                    bool unit) {
  const int64_t n = values.size(2), sides = values.size(1);
  const auto setting = setting_of<T>(entry, values.device(), values.numel());
  const T* columns = triangles.const_data_ptr<T>();
  T* numbers = values.mutable_data_ptr<T>();
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, n * n));
  at::parallel_for(0, values.size(0) * sides, grain, [&](int64_t begin, int64_t end) {
    RoundedRows<T> steps(setting);
    for (int64_t i = begin; i < end; ++i) {
      T* x = numbers + i * n;
      for (int64_t k = 0; k < n; ++k) {
        const T* column = columns + (i / sides * n + k) * n;
        const uint64_t place = i * n + k;
        if (!unit) steps.divide(x + k, column[k], 1, k, place);
        steps.subtract(x + k + 1, x[k], column + k + 1, n - k - 1, k, place + 1);
      }
    }
  });
}

// The type whose arithmetic, rounded to odd, is enough for the format's.
c10::ScalarType step_type(const FormatEntry& entry) {
  Accumulation steps;
  steps.kind = Accumulation::Kind::Steps;
  return dot_type(entry, steps);
}

// Writes values of the format as codes. The mode is none that could change one (up_down does).
void write_codes(const at::Tensor& out, const at::Tensor& values) {
  Format f = entry_of(out).format;
  f.rounding = Rounding::NearestEven;
  const CpuKernels& k = kernels(values.device(), "factorisations");
  void* codes = bits_alias(out).mutable_data_ptr();
  const int64_t n = values.numel();
  values.scalar_type() == c10::ScalarType::Float
      ? k.encode(f, values.const_data_ptr<float>(), codes, n, {})
      : k.encode(f, values.const_data_ptr<double>(), codes, n, {});
}

void expect_operands(const at::Tensor& codes, const FormatEntry& entry) {
  TORCH_CHECK(codes.device().is_cpu() && codes.is_contiguous() && codes.dim() == 3,
              "expected contiguous CPU matrices [batch, n, m] to factorise, but got ",
              codes.sizes(), " on ", codes.device());
  TORCH_CHECK(rounding_format(entry).arithmetic_in_double(),
              "expected a format whose arithmetic float64 can do, but got ", entry.name);
}

} // namespace

void eliminate(const at::Tensor& columns, const at::Tensor& rows, const at::Tensor& order,
               Elimination kind, Pivot pivot) {
  const FormatEntry& entry = entry_of(columns);
  expect_operands(columns, entry);
  const at::Tensor values = decoded(columns, step_type(entry));
  values.scalar_type() == c10::ScalarType::Float
      ? eliminate_all<float>(entry, values, rows, order, kind, pivot)
      : eliminate_all<double>(entry, values, rows, order, kind, pivot);
  write_codes(columns, values);
}

void substitute(const at::Tensor& columns, const at::Tensor& right, bool unit) {
  const FormatEntry& entry = entry_of(right);
  expect_operands(right, entry);
  const c10::ScalarType type = step_type(entry);
  const at::Tensor triangles = decoded(columns, type).contiguous(), values = decoded(right, type);
  type == c10::ScalarType::Float ? substitute_all<float>(entry, triangles, values, unit)
                                 : substitute_all<double>(entry, triangles, values, unit);
  write_codes(right, values);
}

} // namespace at::formats
