#include "executor/measure.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "contract/text.h"
#include "executor/clock.h"
#include "executor/errors.h"
#include "executor/fields.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// Warm-up goes on, up to so many times its length, while the median of so many runs still falls by more than this.
constexpr size_t kStableRuns = 5;
constexpr double kStableWithin = 0.05;
constexpr double kStableShare = 4.0;

// How a field of the plan is read.
using Setter = std::function<void(Plan*, const Fields&, const char*)>;

Setter number(double Plan::*field) {
  return [field](Plan* plan, const Fields& given, const char* name) { plan->*field = given.seconds(name); };
}

Setter count(int64_t Plan::*field) {
  return [field](Plan* plan, const Fields& given, const char* name) {
    plan->*field = given.whole(name, 0, limits::wire::runs);
  };
}

Setter truth(bool Plan::*field) {
  return [field](Plan* plan, const Fields& given, const char* name) { plan->*field = given.truth(name); };
}

std::map<std::string, Setter> setters() {
  return {{"warmup_s", number(&Plan::warmup_s)},
          {"warmup_runs", count(&Plan::warmup_runs)},
          {"min_repeats", count(&Plan::min_repeats)},
          {"max_repeats", count(&Plan::max_repeats)},
          {"min_time_s", number(&Plan::min_time_s)},
          {"max_time_s", number(&Plan::max_time_s)},
          {"min_sample_s", number(&Plan::min_sample_s)},
          {"idle_s", number(&Plan::idle_s)},
          {"energy", truth(&Plan::energy)},
          {"energy_s", number(&Plan::energy_s)},
          {"energy_updates", count(&Plan::energy_updates)},
          {"trials", count(&Plan::trials)},
          {"cool_c", number(&Plan::cool_c)},
          {"cool_s", number(&Plan::cool_s)},
          {"retries", count(&Plan::retries)},
          {"start_c", number(&Plan::start_c)}};
}

// Whether the later half of the latest runs is still clearly faster than the half before it.
bool falling(const std::deque<double>& recent) {
  if (recent.size() < 2 * kStableRuns) return false;
  std::vector<double> earlier(recent.begin(), recent.begin() + kStableRuns);
  std::vector<double> later(recent.begin() + kStableRuns, recent.end());
  std::sort(earlier.begin(), earlier.end());
  std::sort(later.begin(), later.end());
  return later[kStableRuns / 2] < (1.0 - kStableWithin) * earlier[kStableRuns / 2];
}

// Runs until enough was run and the times no longer fall; returns how many runs make a sample.
int64_t warm_up(const std::function<void()>& call, const Plan& plan) {
  const double started = seconds_now();
  double shortest = std::numeric_limits<double>::infinity();
  std::deque<double> recent;
  for (int64_t runs = 1;; ++runs) {
    const double begin = seconds_now();
    call();
    const double end = seconds_now(), spent = end - started;
    shortest = std::min(shortest, end - begin);
    recent.push_back(end - begin);
    if (recent.size() > 2 * kStableRuns) recent.pop_front();
    const bool enough = runs >= plan.warmup_runs && spent >= plan.warmup_s;
    const bool unstable = falling(recent) && spent < kStableShare * plan.warmup_s;
    if ((enough && !unstable) || spent > plan.max_time_s) {
      return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(plan.min_sample_s / std::max(shortest, 1e-9))));
    }
  }
}

std::vector<double> sample(const std::function<void()>& call, const Plan& plan, int64_t number, double window_s) {
  std::vector<double> times;
  const double started = seconds_now(), least_s = std::max(plan.min_time_s, window_s);
  while (true) {
    const double begin = seconds_now();
    for (int64_t i = 0; i < number; ++i) call();
    const double end = seconds_now();
    times.push_back((end - begin) / static_cast<double>(number));
    const double spent = end - started;
    const int64_t taken = static_cast<int64_t>(times.size());
    if (spent >= std::max(plan.max_time_s, window_s)) return times;
    // A window of energy has its length whatever the number of samples.
    if (spent >= window_s && taken >= plan.max_repeats) return times;
    if (taken >= plan.min_repeats && spent >= least_s) return times;
  }
}

JsonObject request(const char* name) { return JsonObject{{ffi::String("do"), ffi::String(name)}}; }

JsonObject no_energy_record(const std::string& reason) {
  return JsonObject{{ffi::String("kind"), ffi::String("unavailable")},
                    {ffi::String("gross_j"), nullptr},
                    {ffi::String("above_idle_j"), nullptr},
                    {ffi::String("source"), ffi::String(reason)},
                    {ffi::String("boundary"), ffi::String("")}};
}

// What the meter has to know of a plan.
JsonObject terms_of(const Plan& plan, bool energy) {
  return JsonObject{{ffi::String("energy"), energy},
                    {ffi::String("energy_s"), plan.energy_s},
                    {ffi::String("energy_updates"), plan.energy_updates},
                    {ffi::String("trials"), plan.trials},
                    {ffi::String("cool_c"), plan.cool_c},
                    {ffi::String("cool_s"), plan.cool_s},
                    {ffi::String("retries"), plan.retries},
                    {ffi::String("start_c"), plan.start_c}};
}

JsonObject time_only() { return JsonObject{{ffi::String("time_s"), wall_seconds()}}; }

JsonArray json_of_times(const std::vector<double>& times) {
  JsonArray array;
  for (const double time : times) array.push_back(time);
  return array;
}

}  // namespace

Plan plan_of(const JsonObject& fields) {
  const std::map<std::string, Setter> known = setters();
  std::vector<std::string> unknown;
  for (const auto& [name, value] : fields) {
    if (known.find(text_of(name)) == known.end()) unknown.push_back(text_of(name));
  }
  if (!unknown.empty()) {
    std::sort(unknown.begin(), unknown.end());
    std::string names;
    for (const std::string& name : unknown) names += (names.empty() ? "" : ", ") + name;
    throw AgentError("bad_request", "unknown fields of a measurement: " + printable(names));
  }
  Plan plan;
  const Fields given(fields, "a field of the measurement");
  for (const auto& [name, set] : known) {
    if (given.has(name.c_str())) set(&plan, given, name.c_str());
  }
  if (plan.min_repeats < 1 || plan.max_repeats < plan.min_repeats || !(plan.max_time_s > 0)) {
    throw AgentError("bad_request", "a measurement needs at least one sample and some time: min_repeats=" +
                                        std::to_string(plan.min_repeats) + ", max_repeats=" +
                                        std::to_string(plan.max_repeats) + ", max_time_s=" +
                                        std::to_string(plan.max_time_s));
  }
  if (plan.trials < 1 || plan.retries < 0 || plan.energy_updates < 0) {
    throw AgentError("bad_request", "a measurement needs at least one window of energy: trials=" +
                                        std::to_string(plan.trials) + ", retries=" + std::to_string(plan.retries) +
                                        ", energy_updates=" + std::to_string(plan.energy_updates));
  }
  return plan;
}

std::string Meter::no_energy(const Plan& plan) {
  try {
    const Json reason = find(process_->ask(request("probe")), "unavailable");
    if (reason != nullptr) return text_of(reason);
    if (!idle_taken_ && plan.idle_s > 0) {
      JsonObject idle = request("idle");
      idle.Set(ffi::String("seconds"), plan.idle_s);
      idle_taken_ = find(process_->ask(idle), "mean_w") != nullptr;
    }
    return "";
  } catch (const AgentError& error) {
    return error.what();
  }
}

JsonObject Meter::windows(const JsonObject& terms, const std::function<Window(double)>& take) {
  const std::lock_guard<std::mutex> lock(one_);
  if (!process_->unusable().empty()) return unwatched(take);
  try {
    return watched(terms, take);
  } catch (const MeterLost&) {
    // Who asked for energy is told why there is none.
    return unwatched(take);
  }
}

JsonObject Meter::watched(const JsonObject& terms, const std::function<Window(double)>& take) {
  JsonObject begin = request("begin");
  begin.Set(ffi::String("plan"), terms);
  std::vector<double> times;
  while (true) {
    // Sampling begins with the warm-up: the window's first edge has a reading under load before it.
    const double window_s = number_of(at(process_->ask(begin), "window_s"));
    const Window window = take(window_s);
    JsonObject end = request("end");
    end.Set(ffi::String("start_s"), window.start_s);
    end.Set(ffi::String("end_s"), window.end_s);
    end.Set(ffi::String("runs"), window.runs);
    JsonObject answer = process_->ask(end);
    if (truth_of(at(answer, "keep"))) times.insert(times.end(), window.times_s.begin(), window.times_s.end());
    const bool again = truth_of(at(answer, "again"));
    answer.erase(ffi::String("keep"));
    answer.erase(ffi::String("again"));
    if (!again) {
      answer.Set(ffi::String("times_s"), json_of_times(times));
      return answer;
    }
    begin = request("begin");
  }
}

JsonObject Meter::unwatched(const std::function<Window(double)>& take) const {
  const JsonObject before = time_only();
  const Window window = take(0.0);
  return JsonObject{{ffi::String("times_s"), json_of_times(window.times_s)},
                    {ffi::String("energy"), no_energy_record(process_->unusable())},
                    {ffi::String("state_before"), before},
                    {ffi::String("state_after"), time_only()}};
}

JsonObject Meter::measure(const std::function<void()>& call, const Plan& plan) {
  const std::string reason = plan.energy ? no_energy(plan) : "not asked for";
  int64_t number = 1;
  const auto take = [&](double window_s) {
    number = warm_up(call, plan);
    Window window;
    window.start_s = seconds_now();
    window.times_s = sample(call, plan, number, window_s);
    window.end_s = seconds_now();
    window.runs = static_cast<int64_t>(window.times_s.size()) * number;
    return window;
  };
  JsonObject result = windows(terms_of(plan, reason.empty()), take);
  if (!reason.empty()) result.Set(ffi::String("energy"), no_energy_record(reason));
  result.Set(ffi::String("number"), number);
  result.Set(ffi::String("threads"), static_cast<int64_t>(threads_));
  return result;
}

}  // namespace edgetlm
