// How often something is run: when warm-up ends, how many samples are enough, how many calls a sample has. Decides
// what device_agent/measure/repeats.py decides; both run the cases of tests/vectors/measuring.json.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/measuring.h"

namespace edgetlm {

// The runs before the first that counts.
class WarmUp {
 public:
  explicit WarmUp(const Plan& plan) : plan_(plan) {}

  // Takes one run and says whether warm-up is over: enough was run, and the times no longer fall or have had their
  // time. `spent_s` are seconds since the first run began.
  bool add(double run_s, double spent_s);

  // Runs that a sample needs to last for `min_sample_s`, by the shortest of the warm-up.
  int64_t runs_per_sample() const;

 private:
  const Plan plan_;
  int64_t runs_ = 0;
  double shortest_s_ = std::numeric_limits<double>::infinity();
  std::deque<double> recent_s_;
};

// Medians of the earlier and of the later half of the latest runs, nothing where there are too few.
std::optional<std::pair<double, double>> medians(const std::deque<double>& recent_s);

// Whether the latest runs still get faster, or are too few to say that they do not.
bool is_falling(const std::deque<double>& recent_s);

// Whether a window of so many samples and seconds is long enough; `window_s` is the length that one of energy has to
// have, 0 without energy.
bool enough_samples(const Plan& plan, int64_t samples, double spent_s, double window_s);

// How many calls of a kernel that takes so long are made together while its energy is measured.
int64_t calls_together(double once_s);

// Calls of a kernel: `repeat` samples of `number` calls.
struct KernelCounts {
  int64_t number;
  int64_t repeat;
};

// How often a kernel is called whose first call took `first_s`, less than the plan's `max_s`, and its second `once_s`.
KernelCounts kernel_counts(const KernelPlan& plan, double first_s, double once_s);

// What is decided of one case of the vectors, both as JSON.
std::string measuring_case(const std::string& input);

}  // namespace edgetlm
