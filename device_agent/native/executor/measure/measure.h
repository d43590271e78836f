// Times, energy and the device's state of one measurement, as device_agent/measure/measurement.py takes them. What
// concerns sensors, throttling and cooling is decided by the meter process, device_agent/measure/meter.py.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "contract/measuring.h"
#include "executor/measure/meter_process.h"
#include "executor/wire/json.h"

namespace edgetlm {

// A plan from the fields of a request; AgentError where a field is unknown or no number.
Plan plan_of(const JsonObject& fields);
// The fields of a kernel's specification that say how often to call it; FieldError where one is no number.
KernelPlan kernel_plan_of(const JsonObject& fields);

// The fields of the specification of variants; AgentError where a field is unknown, no number, or out of range.
VariantPlan variant_plan_of(const JsonObject& fields);

// The record of energy that could not be measured, with the reason.
JsonObject no_energy_record(const std::string& reason);

// Samples between two moments of the monotonic clock.
struct Window {
  std::vector<double> times_s;
  double start_s = 0.0;
  double end_s = 0.0;
  // Inferences in it.
  int64_t runs = 0;
};

class Meter {
 public:
  Meter(MeterProcess* process, int threads) : process_(process), threads_(threads) {}

  // Runs `call`, which makes `together` runs, as planned; the reply's fields.
  JsonObject measure(const std::function<void()>& call, const Plan& plan, int64_t together = 1);

  // Takes one window without energy, and another where the board throttled; the reply's fields.
  JsonObject times(int64_t retries, double cool_s, const std::function<Window(double)>& take);

 private:
  // Takes windows until one did not throttle, or as the plan says.
  //
  // `take` gets the least length of a window in seconds. The times of all windows that count are `times_s` of the
  // result, beside what the meter says of them.
  JsonObject windows(const Plan& plan, const std::function<Window(double)>& take);
  // Why energy cannot be measured, empty where it can; takes the idle power the first time.
  std::string no_energy(const Plan& plan);
  JsonObject watched(const Plan& plan, const std::function<Window(double)>& take);
  JsonObject unwatched(const std::function<Window(double)>& take) const;

  MeterProcess* process_;
  const int threads_;
  // The meter knows one measurement at a time, and two at once would disturb each other.
  std::mutex one_;
  bool idle_taken_ = false;
};

}  // namespace edgetlm
