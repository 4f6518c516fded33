// Dot products with every step rounded, in other orders than one running sum. One thread computes a
// result, and holds the partial sums that wait for another.
#include <ATen/native/formats/cuda/StepSum.h>

namespace at::formats::cuda {
namespace {

// Sums have at most 2^30 terms, so a tree, by halves or by neighbours, has some 30 levels.
constexpr int kMostWaiting = 48;

// Stack of partial sums, newest last. A step's number gives its random word, as on the CPU, also
// for absent terms.
template <typename T>
class OrderedSum {
 public:
  TD_HOST_DEVICE OrderedSum(const Steps<T>& steps, int64_t place) : sum_(steps, place) {}

  TD_HOST_DEVICE Sum<T>& running() { return sum_; }
  TD_HOST_DEVICE void push(T value, bool there) {
    values_[depth_] = value;
    there_[depth_++] = there;
  }
  TD_HOST_DEVICE void push_running() {
    push(sum_.taken_sum(), true);
    rounded_ = true;
  }
  TD_HOST_DEVICE void join(int times) {
    for (; times > 0; --times, --depth_) {
      const int a = depth_ - 2, b = depth_ - 1;
      const T both = sum_.join(values_[a], values_[b]);
      if (there_[a] && there_[b]) {
        values_[a] = both;
        rounded_ = true;
      } else if (there_[b]) {
        values_[a] = values_[b];
      }
      there_[a] |= there_[b];
    }
  }
  // Returns the code of the sum. A single unrounded term is put into the accumulator as a running
  // sum's first term is. The bias comes last. start: the bias, or nullptr.
  TD_HOST_DEVICE uint64_t finished(const T* start) {
    T total = 0;
    if (depth_ > 0) {
      total = there_[0] ? values_[0] : T{0};
      if (rounded_) sum_.pass_word();
      else total = sum_.join(T{0}, total);
    }
    if (start) {
      const T held = sum_.hold(*start);
      if (depth_ == 0) {
        total = held;
      } else {
        const T both = sum_.join(held, total);
        total = there_[0] ? both : held;
      }
    }
    return sum_.result(total);
  }

 private:
  Sum<T> sum_;
  int depth_{0};
  bool rounded_{false};
  T values_[kMostWaiting];
  bool there_[kMostWaiting];
};

template <typename T>
struct OrderedSums : StepOperands<T> {
  TD_HOST_DEVICE void operator()(int64_t i) const {
    const Steps<T>& steps = this->steps;
    const Places& places = this->places;
    OrderedSum<T> sum(steps, i);
    const int64_t k = places.shape.k;
    if (steps.order == SumOrder::Lanes) {
      const int64_t terms = k > 0 ? k : 1;
      const int64_t lanes = steps.lanes < k ? steps.lanes : terms;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        for (int64_t term = lane; term < k; term += lanes) this->add(sum.running(), i, term);
        sum.push_running();
        sum.join(c10::formats::joins_behind(steps.order, lane, lanes));
      }
    } else {
      for (int64_t term = 0; term < k; ++term) {
        const T y = this->b[places.right(i, term)];
        const T value = this->a ? sum.running().product(this->a[places.left(i, term)], y) : y;
        sum.push(value, places.has_row(i, term) && places.has(i, term));
        sum.join(c10::formats::joins_behind(steps.order, term, k));
      }
    }
    this->out.put(i, sum.finished(this->start ? this->start + i : nullptr));
  }
};

} // namespace

template <typename T>
Status ordered_sums(const StepPolicy& policy, const Dots<T>& dots, void* out, Stream stream) {
  const OrderedSums<T> body{{policy, dots, out}};
  return for_each(body.results(), stream, body);
}

template Status ordered_sums(const StepPolicy&, const Dots<float>&, void*, Stream);
template Status ordered_sums(const StepPolicy&, const Dots<double>&, void*, Stream);

} // namespace at::formats::cuda
