#include "executor/measure/repeats.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "executor/measure/measure.h"
#include "executor/wire/json.h"

namespace edgetlm {
namespace {

constexpr size_t kHalf = static_cast<size_t>(measuring::stable_runs);

double median_of(std::deque<double>::const_iterator from) {
  std::vector<double> half(from, from + kHalf);
  std::sort(half.begin(), half.end());
  return half[kHalf / 2];
}

std::deque<double> times_in(const JsonObject& fields, const char* name) {
  std::deque<double> times;
  for (const Json& time : array_of(at(fields, name))) times.push_back(number_of(time));
  return times;
}

JsonObject warm_up_case(const JsonObject& fields) {
  WarmUp warm_up(plan_of(object_of(at(fields, "plan"))));
  double spent_s = 0.0;
  int64_t runs = 0;
  for (const double run_s : times_in(fields, "runs_s")) {
    spent_s += run_s;
    ++runs;
    if (warm_up.add(run_s, spent_s)) {
      return {{tvm::ffi::String("runs"), runs}, {tvm::ffi::String("runs_per_sample"), warm_up.runs_per_sample()}};
    }
  }
  return {{tvm::ffi::String("runs"), nullptr}};
}

JsonObject stability_case(const JsonObject& fields) {
  const std::deque<double> times = times_in(fields, "runs_s");
  JsonObject said{{tvm::ffi::String("medians_s"), nullptr}, {tvm::ffi::String("falling"), is_falling(times)}};
  if (const auto found = medians(times)) said.Set(tvm::ffi::String("medians_s"), JsonArray{found->first, found->second});
  return said;
}

JsonObject window_case(const JsonObject& fields) {
  const Plan plan = plan_of(object_of(at(fields, "plan")));
  double spent_s = 0.0;
  int64_t samples = 0;
  for (const double sample_s : times_in(fields, "samples_s")) {
    spent_s += sample_s;
    ++samples;
    if (enough_samples(plan, samples, spent_s, number_of(at(fields, "window_s")))) {
      return {{tvm::ffi::String("samples"), samples}};
    }
  }
  return {{tvm::ffi::String("samples"), nullptr}};
}

JsonObject kernel_case(const JsonObject& fields) {
  const KernelCounts found = kernel_counts(kernel_plan_of(object_of(at(fields, "plan"))),
                                           number_of(at(fields, "first_s")), number_of(at(fields, "once_s")));
  return {{tvm::ffi::String("number"), found.number}, {tvm::ffi::String("repeat"), found.repeat}};
}

}  // namespace

bool WarmUp::add(double run_s, double spent_s) {
  ++runs_;
  shortest_s_ = std::min(shortest_s_, run_s);
  recent_s_.push_back(run_s);
  if (recent_s_.size() > 2 * kHalf) recent_s_.pop_front();
  const bool enough = runs_ >= plan_.warmup_runs && spent_s >= plan_.warmup_s;
  const bool patient = spent_s < measuring::longest_warmup * plan_.warmup_s;
  return (enough && !(patient && is_falling(recent_s_))) || spent_s > plan_.max_time_s;
}

int64_t WarmUp::runs_per_sample() const {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(plan_.min_sample_s / std::max(shortest_s_, measuring::least_s))));
}

std::optional<std::pair<double, double>> medians(const std::deque<double>& recent_s) {
  if (recent_s.size() < 2 * kHalf) return std::nullopt;
  return std::make_pair(median_of(recent_s.end() - 2 * kHalf), median_of(recent_s.end() - kHalf));
}

bool is_falling(const std::deque<double>& recent_s) {
  // A model of few long runs is the one whose first runs weigh most, so that what nothing is known of yet is not taken
  // for stable.
  const auto found = medians(recent_s);
  return !found || found->second < (1.0 - measuring::stable_within) * found->first;
}

bool enough_samples(const Plan& plan, int64_t samples, double spent_s, double window_s) {
  if (spent_s >= std::max(plan.max_time_s, window_s)) return true;
  // A window of energy has its length whatever the number of samples.
  if (spent_s >= window_s && samples >= plan.max_repeats) return true;
  return samples >= plan.min_repeats && spent_s >= std::max(plan.min_time_s, window_s);
}

int64_t calls_together(double once_s) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(measuring::batch_s / std::max(once_s, measuring::least_s))));
}

KernelCounts kernel_counts(const KernelPlan& plan, double first_s, double once_s) {
  const double call_s = std::max(once_s, measuring::least_s);
  const double shortest_s = plan.flush_bytes ? 0.0 : plan.min_repeat_ms * 1e-3;
  const double number = std::max(static_cast<double>(plan.number), std::ceil(shortest_s / call_s));
  const double affordable = std::floor((plan.max_s - first_s) / (number * call_s));
  const double repeat = std::max(1.0, std::min(static_cast<double>(plan.repeat), affordable));
  return {static_cast<int64_t>(number), static_cast<int64_t>(repeat)};
}

std::string measuring_case(const std::string& input) {
  const JsonObject fields = object_of(parse_json(input));
  const std::string decision = text_of(at(fields, "decision"));
  if (decision == "warm_up") return json_text(warm_up_case(fields));
  if (decision == "stability") return json_text(stability_case(fields));
  if (decision == "window") return json_text(window_case(fields));
  if (decision == "kernel") return json_text(kernel_case(fields));
  if (decision == "together") {
    return json_text(JsonObject{{tvm::ffi::String("together"), calls_together(number_of(at(fields, "once_s")))}});
  }
  throw std::invalid_argument("there is no decision " + decision);
}

}  // namespace edgetlm
