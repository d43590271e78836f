#include "executor/serve/status.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

namespace edgetlm {

void Status::announce(const JsonObject& fields) { write_line(json_text(fields)); }

void Status::set(const std::string& channel, bool busy, double limit_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (busy_[channel] == busy) return;
  busy_[channel] = busy;
  char number[32];
  snprintf(number, sizeof(number), "%g", limit_s);
  write_line(busy ? "B " + channel + " " + number : "I " + channel);
}

void Status::write_line(const std::string& line) {
  const std::string whole = line + "\n";
  // Shorter than a pipe's atomic size. Without a reader the daemon is gone, and this process soon is too.
  while (write(descriptor_, whole.data(), whole.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace edgetlm
