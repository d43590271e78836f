// Times, energy and the device's state of one measurement; the plan is that of device_agent/measure.py.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "executor/json.h"
#include "executor/meter_process.h"

namespace edgetlm {

// How long and how often to run.
struct Plan {
  double warmup_s = 0.5;
  int64_t warmup_runs = 3;
  int64_t min_repeats = 20;
  int64_t max_repeats = 5000;
  double min_time_s = 1.0;
  double max_time_s = 60.0;
  double min_sample_s = 0.0005;
  double idle_s = 5.0;
  bool energy = true;
  double energy_s = 5.0;
};

// A plan from the fields of a request; AgentError where a field is unknown or no number.
Plan plan_of(const JsonObject& fields);

class Meter {
 public:
  Meter(MeterProcess* process, int threads) : process_(process), threads_(threads) {}

  // Runs `call` as planned; the reply's fields.
  JsonObject measure(const std::function<void()>& call, Plan plan);
  // Clocks, temperatures and throttling at this moment; the time alone where no sensors' process was given.
  JsonObject state();
  int threads() const { return threads_; }

 private:
  // Why there is no energy, empty where there is.
  std::string unavailable();

  MeterProcess* process_;
  const int threads_;
  bool idle_taken_ = false;
};

}  // namespace edgetlm
