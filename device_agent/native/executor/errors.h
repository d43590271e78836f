// Failures that are reported to the host.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace edgetlm {

// A failure of a kind that the host maps to one of its own errors; see docs/wire.md.
class AgentError : public std::runtime_error {
 public:
  AgentError(std::string kind, const std::string& message)
      : std::runtime_error(message), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

// The process that reads sensors failed or refused.
class MeterLost : public AgentError {
 public:
  explicit MeterLost(const std::string& message) : AgentError("measure", message) {}
};

// A request's field that is missing or of another type; the text names it.
class FieldError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The peer closed the connection, or said nothing for too long.
class ClosedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace edgetlm
