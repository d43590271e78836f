// The process that reads the board's sensors: one JSON object a line, each answered by one line.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "executor/wire/json.h"
#include "executor/wire/wire.h"

namespace edgetlm {

// One for the whole executor; several threads may ask.
class MeterProcess {
 public:
  // Nothing is started before the first request.
  //
  // `command` is the program and its arguments; without any there is no meter.
  explicit MeterProcess(std::vector<std::string> command);
  MeterProcess(const MeterProcess&) = delete;
  ~MeterProcess();

  // Why it cannot be asked, empty where it can. A process that failed once is not started again: each
  // measurement would wait for it.
  std::string unusable();
  // The answer to one request; MeterLost where the process fails or says so.
  JsonObject ask(const JsonObject& request);

 private:
  void start();
  void stop();
  [[noreturn]] void fail(const std::string& reason);
  std::string exchange(const std::string& line, double limit_s);

  std::mutex mutex_;
  std::vector<std::string> command_;
  std::string unusable_;
  int process_ = 0;
  Descriptor to_;
  Descriptor from_;
  std::string pending_;
  double cool_s_ = 0.0;
};

}  // namespace edgetlm
