// The board's monotonic clock, by which everything is timed.
#pragma once

#include <time.h>

namespace edgetlm {

// CLOCK_MONOTONIC, seconds.
inline double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Time of day, seconds.
inline double wall_seconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace edgetlm
