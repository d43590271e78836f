#include "executor/meter_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/errors.h"

extern "C" char** environ;

namespace edgetlm {
namespace {

// Answers but for the idle power, whose length the request says.
constexpr double kAnswerSeconds = 30.0;
constexpr size_t kMaxLineBytes = 16 << 20;

}  // namespace

MeterProcess::~MeterProcess() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
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
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  process_ = 0;
  pending_.clear();
  throw AgentError("measure", "the sensors' process " + command_[0] + " failed: " + reason);
}

JsonObject MeterProcess::ask(const JsonObject& request) {
  if (process_ == 0) start();
  const std::string line = json_text(request) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(to_.number(), line.data() + sent, line.size() - sent);
    if (count < 0 && errno != EINTR) fail(strerror(errno));
    if (count > 0) sent += static_cast<size_t>(count);
  }
  const Json seconds = find(request, "seconds");
  const double limit = kAnswerSeconds + (seconds == nullptr ? 0.0 : number_of(seconds));
  while (pending_.find('\n') == std::string::npos) {
    pollfd ready{from_.number(), POLLIN, 0};
    const int count = poll(&ready, 1, static_cast<int>(limit * 1e3));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) fail("no answer to " + text_of(at(request, "do")));
    char piece[4096];
    const ssize_t got = read(from_.number(), piece, sizeof(piece));
    if (got <= 0) fail("it ended");
    pending_.append(piece, static_cast<size_t>(got));
    if (pending_.size() > kMaxLineBytes) fail("its answer is too long");
  }
  const size_t end = pending_.find('\n');
  const std::string answer = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  try {
    const JsonObject fields = object_of(parse_json(answer));
    const Json error = find(fields, "error");
    if (error != nullptr) throw AgentError("measure", error.as<tvm::ffi::String>() ? text_of(error) : json_text(error));
    return fields;
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
}

}  // namespace edgetlm
