#include "executor/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "executor/clock.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// How a field of the plan is set.
using Setter = std::function<void(Plan*, const Json&)>;

Setter seconds(double Plan::*field) {
  return [field](Plan* plan, const Json& value) { plan->*field = number_of(value); };
}

Setter count(int64_t Plan::*field) {
  return [field](Plan* plan, const Json& value) { plan->*field = integer_of(value); };
}

std::map<std::string, Setter> setters() {
  return {{"warmup_s", seconds(&Plan::warmup_s)},
          {"warmup_runs", count(&Plan::warmup_runs)},
          {"min_repeats", count(&Plan::min_repeats)},
          {"max_repeats", count(&Plan::max_repeats)},
          {"min_time_s", seconds(&Plan::min_time_s)},
          {"max_time_s", seconds(&Plan::max_time_s)},
          {"min_sample_s", seconds(&Plan::min_sample_s)},
          {"idle_s", seconds(&Plan::idle_s)},
          {"energy", [](Plan* plan, const Json& value) { plan->energy = truth_of(value); }},
          {"energy_s", seconds(&Plan::energy_s)}};
}

// Runs unmeasured; returns how many runs make a sample of the least length.
int64_t warm_up(const std::function<void()>& call, const Plan& plan) {
  const double started = seconds_now();
  double shortest = std::numeric_limits<double>::infinity();
  for (int64_t runs = 1;; ++runs) {
    const double begin = seconds_now();
    call();
    const double end = seconds_now();
    shortest = std::min(shortest, end - begin);
    const bool enough = runs >= plan.warmup_runs && end - started >= plan.warmup_s;
    if (enough || end - started > plan.max_time_s) {
      return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(plan.min_sample_s / std::max(shortest, 1e-9))));
    }
  }
}

std::vector<double> sample(const std::function<void()>& call, const Plan& plan, int64_t number) {
  std::vector<double> times;
  const double started = seconds_now();
  while (true) {
    const double begin = seconds_now();
    for (int64_t i = 0; i < number; ++i) call();
    const double end = seconds_now();
    times.push_back((end - begin) / static_cast<double>(number));
    const double spent = end - started;
    const int64_t taken = static_cast<int64_t>(times.size());
    if (taken >= plan.max_repeats || spent >= plan.max_time_s) return times;
    if (taken >= plan.min_repeats && spent >= plan.min_time_s) return times;
  }
}

JsonObject request(const char* name) { return JsonObject{{ffi::String("do"), ffi::String(name)}}; }

JsonObject no_energy(const std::string& reason) {
  return JsonObject{{ffi::String("kind"), ffi::String("unavailable")},
                    {ffi::String("gross_j"), nullptr},
                    {ffi::String("above_idle_j"), nullptr},
                    {ffi::String("source"), ffi::String(reason)},
                    {ffi::String("boundary"), ffi::String("")}};
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
    throw AgentError("bad_request", "unknown fields of a measurement: " + names);
  }
  Plan plan;
  try {
    for (const auto& [name, value] : fields) known.at(text_of(name))(&plan, value);
  } catch (const FieldError& error) {
    throw AgentError("bad_request", std::string("a field of the measurement is no number: ") + error.what());
  }
  if (plan.min_repeats < 1 || plan.max_repeats < plan.min_repeats || !(plan.max_time_s > 0)) {
    throw AgentError("bad_request", "a measurement needs at least one sample and some time: min_repeats=" +
                                        std::to_string(plan.min_repeats) + ", max_repeats=" +
                                        std::to_string(plan.max_repeats) + ", max_time_s=" +
                                        std::to_string(plan.max_time_s));
  }
  return plan;
}

std::string Meter::unavailable() {
  if (!process_->exists()) return "this session was started without a sensors' process";
  const Json reason = find(process_->ask(request("probe")), "unavailable");
  return reason == nullptr ? "" : text_of(reason);
}

JsonObject Meter::state() {
  if (process_->exists()) return process_->ask(request("state"));
  return JsonObject{{ffi::String("time_s"), wall_seconds()}};
}

JsonObject Meter::measure(const std::function<void()>& call, Plan plan) {
  const std::string reason = plan.energy ? unavailable() : "not asked for";
  const bool measured = reason.empty();
  if (measured && !idle_taken_ && plan.idle_s > 0) {
    JsonObject idle = request("idle");
    idle.Set(ffi::String("seconds"), plan.idle_s);
    process_->ask(idle);
    idle_taken_ = true;
  }
  if (measured) plan.min_time_s = std::max(plan.min_time_s, plan.energy_s);
  const int64_t number = warm_up(call, plan);
  const JsonObject before = state();
  if (measured) process_->ask(request("begin"));
  const double start = seconds_now();
  const std::vector<double> times = sample(call, plan, number);
  const double end = seconds_now();
  JsonObject energy = no_energy(reason);
  if (measured) {
    JsonObject window = request("end");
    window.Set(ffi::String("start_s"), start);
    window.Set(ffi::String("end_s"), end);
    window.Set(ffi::String("runs"), static_cast<int64_t>(times.size()) * number);
    energy = object_of(at(process_->ask(window), "energy"));
  }
  JsonArray samples;
  for (const double time : times) samples.push_back(time);
  return JsonObject{{ffi::String("times_s"), samples},
                    {ffi::String("number"), number},
                    {ffi::String("energy"), energy},
                    {ffi::String("state_before"), before},
                    {ffi::String("state_after"), state()},
                    {ffi::String("threads"), static_cast<int64_t>(threads_)}};
}

}  // namespace edgetlm
