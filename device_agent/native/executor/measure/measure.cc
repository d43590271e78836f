#include "executor/measure/measure.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "contract/text/text.h"
#include "executor/clock.h"
#include "executor/errors.h"
#include "executor/measure/repeats.h"
#include "executor/wire/fields.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// Runs until enough was run and the times no longer fall; returns how many runs make a sample.
int64_t warm_up(const std::function<void()>& call, const Plan& plan) {
  WarmUp runs(plan);
  const double started = seconds_now();
  while (true) {
    const double begin = seconds_now();
    call();
    const double end = seconds_now();
    if (runs.add(end - begin, end - started)) return runs.runs_per_sample();
  }
}

std::vector<double> sample(const std::function<void()>& call, const Plan& plan, int64_t number, double window_s) {
  std::vector<double> times;
  const double started = seconds_now();
  while (true) {
    const double begin = seconds_now();
    for (int64_t i = 0; i < number; ++i) call();
    const double end = seconds_now();
    times.push_back((end - begin) / static_cast<double>(number));
    if (enough_samples(plan, static_cast<int64_t>(times.size()), end - started, window_s)) return times;
  }
}

JsonObject request(const char* name) { return JsonObject{{ffi::String("do"), ffi::String(name)}}; }

JsonObject fields_of(const Plan& plan) {
  JsonObject fields;
  for (const auto& field : kPlanFields) {
    std::visit([&](auto member) { fields.Set(ffi::String(field.name), plan.*member); }, field.member);
  }
  return fields;
}

// Reads one field of a plan into its member.
template <typename P>
struct Setter {
  void operator()(double P::*member) const { plan->*member = given.seconds(name); }
  void operator()(int64_t P::*member) const { plan->*member = given.whole(name, 0, limits::wire::runs); }
  void operator()(bool P::*member) const { plan->*member = given.truth(name); }

  const Fields& given;
  const char* name;
  P* plan;
};

// A plan with the given fields in place of its defaults; AgentError where one is unknown or no number.
template <typename P, size_t N>
P filled(const PlanField<P> (&table)[N], const JsonObject& fields) {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : fields) {
    const std::string text = text_of(name);
    const auto named = [&](const PlanField<P>& field) { return text == field.name; };
    if (std::none_of(std::begin(table), std::end(table), named)) unknown.push_back(text);
  }
  if (!unknown.empty()) {
    std::sort(unknown.begin(), unknown.end());
    std::string names;
    for (const std::string& name : unknown) names += (names.empty() ? "" : ", ") + name;
    throw AgentError("bad_request", "unknown fields of a measurement: " + printable(names));
  }
  P plan;
  const Fields given(fields, "a field of the measurement");
  for (const auto& field : table) {
    if (given.has(field.name)) std::visit(Setter<P>{given, field.name, &plan}, field.member);
  }
  return plan;
}

JsonObject time_only() { return JsonObject{{ffi::String("time_s"), wall_seconds()}}; }

JsonArray json_of_times(const std::vector<double>& times) {
  JsonArray array;
  for (const double time : times) array.push_back(time);
  return array;
}

}  // namespace

JsonObject no_energy_record(const std::string& reason) {
  return JsonObject{{ffi::String("kind"), ffi::String("unavailable")},
                    {ffi::String("gross_j"), nullptr},
                    {ffi::String("above_idle_j"), nullptr},
                    {ffi::String("source"), ffi::String(reason)},
                    {ffi::String("boundary"), ffi::String("")}};
}

Plan plan_of(const JsonObject& fields) {
  const Plan plan = filled(kPlanFields, fields);
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

VariantPlan variant_plan_of(const JsonObject& fields) {
  const VariantPlan plan = filled(kVariantPlanFields, fields);
  if (plan.runs < 1 || plan.slowest < 1) {
    throw AgentError("bad_request", "variants need at least one run, and a limit of at least 1: runs=" +
                                        std::to_string(plan.runs) + ", slowest=" + std::to_string(plan.slowest));
  }
  return plan;
}

KernelPlan kernel_plan_of(const JsonObject& fields) {
  KernelPlan plan;
  for (const auto& field : kKernelPlanFields) {
    const Json value = find(fields, field.name);
    if (value == nullptr) continue;
    std::visit(
        [&](auto member) {
          using Value = std::decay_t<decltype(plan.*member)>;
          if constexpr (std::is_same_v<Value, bool>) {
            plan.*member = truth_of(value);
          } else {
            plan.*member = static_cast<Value>(number_of(value));
          }
        },
        field.member);
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

JsonObject Meter::windows(const Plan& plan, const std::function<Window(double)>& take) {
  const std::lock_guard<std::mutex> lock(one_);
  if (!process_->unusable().empty()) return unwatched(take);
  try {
    return watched(plan, take);
  } catch (const MeterLost&) {
    // The reply says why there is no energy.
    return unwatched(take);
  }
}

JsonObject Meter::times(int64_t retries, double cool_s, const std::function<Window(double)>& take) {
  Plan plan;
  plan.energy = false;
  plan.retries = retries;
  plan.cool_s = cool_s;
  JsonObject reply = windows(plan, take);
  reply.erase(ffi::String("energy"));
  reply.Set(ffi::String("threads"), static_cast<int64_t>(threads_));
  return reply;
}

JsonObject Meter::watched(const Plan& plan, const std::function<Window(double)>& take) {
  JsonObject begin = request("begin");
  begin.Set(ffi::String("plan"), fields_of(plan));
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

JsonObject Meter::measure(const std::function<void()>& call, const Plan& plan, int64_t together) {
  const std::string reason = plan.energy ? no_energy(plan) : "not asked for";
  int64_t number = 1;
  const auto take = [&](double window_s) {
    number = warm_up(call, plan);
    Window window;
    window.start_s = seconds_now();
    window.times_s = sample(call, plan, number, window_s);
    window.end_s = seconds_now();
    window.runs = static_cast<int64_t>(window.times_s.size()) * number * together;
    for (double& time : window.times_s) time /= static_cast<double>(together);
    return window;
  };
  Plan asked = plan;
  asked.energy = reason.empty();
  JsonObject result = windows(asked, take);
  if (!reason.empty()) result.Set(ffi::String("energy"), no_energy_record(reason));
  result.Set(ffi::String("number"), number * together);
  result.Set(ffi::String("threads"), static_cast<int64_t>(threads_));
  return result;
}

}  // namespace edgetlm
