#include "executor/measure/meter_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract/limits.h"
#include "executor/clock.h"
#include "executor/errors.h"

extern "C" char** environ;

namespace edgetlm {
namespace {

// Answers but for the idle power, whose length the request says, and cooling, whose longest time it says.
constexpr double kAnswerSeconds = 30.0;

}  // namespace

MeterProcess::MeterProcess(std::vector<std::string> command) : command_(std::move(command)) {
  if (command_.empty()) unusable_ = "this session was started without a process that reads sensors";
}

MeterProcess::~MeterProcess() { stop(); }

std::string MeterProcess::unusable() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unusable_;
}

void MeterProcess::stop() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

void MeterProcess::start() {
  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) != 0) fail(strerror(errno));
  Descriptor child_in(input[0]), to(input[1]);
  if (pipe2(output, O_CLOEXEC) != 0) fail(strerror(errno));
  Descriptor from(output[0]), child_out(output[1]);
  std::vector<char*> arguments;
  for (std::string& argument : command_) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.number(), 0);
  posix_spawn_file_actions_adddup2(&actions, child_out.number(), 1);
  const int error = posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    process_ = 0;
    fail(strerror(error));
  }
  to_ = std::move(to);
  from_ = std::move(from);
}

void MeterProcess::fail(const std::string& reason) {
  stop();
  unusable_ = "the process that reads sensors failed: " + reason;
  throw MeterLost(unusable_);
}

JsonObject MeterProcess::ask(const JsonObject& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!unusable_.empty()) throw MeterLost(unusable_);
  if (process_ == 0) start();
  const Json seconds = find(request, "seconds"), plan = find(request, "plan");
  if (plan != nullptr) cool_s_ = number_of(at(object_of(plan), "cool_s"));
  const double limit_s = kAnswerSeconds + cool_s_ + (seconds == nullptr ? 0.0 : number_of(seconds));
  const std::string answer = exchange(json_text(request) + "\n", limit_s);
  JsonObject fields;
  try {
    fields = object_of(parse_json(answer));
  } catch (const std::exception& error) {
    fail(error.what());
  }
  const Json error = find(fields, "error");
  if (error == nullptr) return fields;
  throw MeterLost(error.as<tvm::ffi::String>() ? text_of(error) : json_text(error));
}

std::string MeterProcess::exchange(const std::string& line, double limit_s) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(to_.number(), line.data() + sent, line.size() - sent);
    if (count < 0 && errno != EINTR) fail(strerror(errno));
    if (count > 0) sent += static_cast<size_t>(count);
  }
  const double deadline = seconds_now() + limit_s;
  while (pending_.find('\n') == std::string::npos) {
    pollfd ready{from_.number(), POLLIN, 0};
    const double patience_s = deadline - seconds_now();
    const int count = patience_s > 0 ? poll(&ready, 1, static_cast<int>(patience_s * 1e3) + 1) : 0;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("it does not answer");
    char piece[4096];
    const ssize_t got = read(from_.number(), piece, sizeof(piece));
    if (got <= 0) fail("it ended");
    pending_.append(piece, static_cast<size_t>(got));
    if (pending_.size() > static_cast<size_t>(limits::wire::meter_line_bytes)) fail("its answer is too long");
  }
  const size_t end = pending_.find('\n');
  const std::string answer = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return answer;
}

}  // namespace edgetlm
