// Times, energy and the device's state of one measurement. The plan is that of device_agent/measure/measurement.py; what
// concerns sensors, throttling and cooling is decided by the meter process, device_agent/measure/meter.py.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "executor/json.h"
#include "executor/meter_process.h"

namespace edgetlm {

// How long and how often to run; see device_agent.measure.measurement.Plan.
struct Plan {
  double warmup_s = 0.5;
  int64_t warmup_runs = 3;
  int64_t min_repeats = 20;
  int64_t max_repeats = 5000;
  double min_time_s = 1.0;
  double max_time_s = 60.0;
  double min_sample_s = 0.0005;
  double idle_s = 10.0;
  bool energy = true;
  double energy_s = 10.0;
  int64_t energy_updates = 50;
  int64_t trials = 3;
  double cool_c = 2.0;
  double cool_s = 120.0;
  int64_t retries = 2;
  double start_c = 0.0;
};

// A plan from the fields of a request; AgentError where a field is unknown or no number.
Plan plan_of(const JsonObject& fields);

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

  // Runs `call` as planned; the reply's fields.
  JsonObject measure(const std::function<void()>& call, const Plan& plan);

  // Takes windows until one did not throttle, or as the terms say.
  //
  // `terms` are the meter's (device_agent.measure.meter.Terms), and `take` is told how long a window has to be at
  // least. The times of all windows that count are `times_s` of the result, beside what the meter says of them.
  JsonObject windows(const JsonObject& terms, const std::function<Window(double)>& take);

  int threads() const { return threads_; }

 private:
  // Why energy cannot be measured, empty where it can; takes the idle power the first time.
  std::string no_energy(const Plan& plan);
  JsonObject watched(const JsonObject& terms, const std::function<Window(double)>& take);
  JsonObject unwatched(const std::function<Window(double)>& take) const;

  MeterProcess* process_;
  const int threads_;
  // The meter knows one measurement at a time, and two at once would disturb each other.
  std::mutex one_;
  bool idle_taken_ = false;
};

}  // namespace edgetlm
