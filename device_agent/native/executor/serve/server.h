// The listener and its two kinds of client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>

#include "executor/measure/measure.h"
#include "executor/serve/commands.h"
#include "executor/serve/listener.h"
#include "executor/serve/status.h"
#include "executor/wire/wire.h"

namespace edgetlm {

// A place that one client holds; given back by another thread than took it.
class Seat {
 public:
  // Waits until it is free, at most so many seconds; whether it was taken.
  bool take(double seconds);
  void give();

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool taken_ = false;
};

// What the daemon says on stdin.
struct Specification {
  int threads = 1;
  std::string key;
  std::string folder;
  // Of the keys whose bundles may be loaded.
  std::string trust_file;
  int parent = 0;
  std::vector<std::string> meter;
};

// AgentError where a field is missing, or another engine than tvm is asked for.
Specification specification_of(const JsonObject& fields);

// Frames are served by the main thread, because TVM keeps a thread pool for each calling thread; RPC has a thread
// of its own. Each kind has one client at a time.
class Server {
 public:
  Server(const Specification& specification, Status* status);

  // Serves until the process is killed.
  [[noreturn]] void run();

 private:
  // Checks the key; what may have to wait is done by a thread of its own.
  void admit(Descriptor connection, const std::string& data);
  void greet_frames(Descriptor connection);
  void greet_rpc(Descriptor connection);
  void serve_frames(int connection);

  const std::string key_;
  Status* status_;
  MeterProcess sensors_;
  Meter meter_;
  Commands commands_;
  Listener listener_;
  Seat frame_seat_;
  Seat rpc_seat_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Descriptor> waiting_;
};

}  // namespace edgetlm
