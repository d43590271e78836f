// The process that reads the board's sensors: one JSON object a line, each answered by one line.
#pragma once

#include <string>
#include <vector>

#include "executor/json.h"
#include "executor/wire.h"

namespace edgetlm {

class MeterProcess {
 public:
  // Nothing is started before the first request.
  //
  // `command` is the program and its arguments; without any there is no meter.
  explicit MeterProcess(std::vector<std::string> command) : command_(std::move(command)) {}
  MeterProcess(const MeterProcess&) = delete;
  ~MeterProcess();

  bool exists() const { return !command_.empty(); }
  // The answer to one request; AgentError of the kind "measure" where the process fails or says so.
  JsonObject ask(const JsonObject& request);

 private:
  void start();
  [[noreturn]] void fail(const std::string& reason);

  std::vector<std::string> command_;
  int process_ = 0;
  Descriptor to_;
  Descriptor from_;
  std::string pending_;
};

}  // namespace edgetlm
