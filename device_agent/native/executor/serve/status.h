// What this process reports to the daemon, through the pipe that was its stdout.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "executor/wire/json.h"

namespace edgetlm {

class Status {
 public:
  explicit Status(int descriptor) : descriptor_(descriptor) {}

  // The first line: where the executor listens, or why it cannot.
  void announce(const JsonObject& fields);
  // Work on a channel begins or ends; a limit of 0 seconds means the session's.
  void set(const std::string& channel, bool busy, double limit_s = 0.0);

 private:
  void write_line(const std::string& line);

  const int descriptor_;
  std::mutex mutex_;
  std::map<std::string, bool> busy_;
};

}  // namespace edgetlm
