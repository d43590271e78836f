#include "executor/door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "contract/text.h"
#include "executor/clock.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

constexpr double kHandshakeSeconds = 10.0;
// Those that have a secret say it at once: where the room is used up, who has been silent for longest goes.
constexpr size_t kRoom = 32;
constexpr int kBacklog = 64;
// Out of file descriptors, or of memory for one more connection.
constexpr useconds_t kExhaustedMicroseconds = 100000;
// A peer that is gone without a word is found out after about two minutes.
constexpr std::pair<int, int> kKeepAlive[] = {{TCP_KEEPIDLE, 60}, {TCP_KEEPINTVL, 15}, {TCP_KEEPCNT, 4}};

Descriptor listen_on_loopback() {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (listener.number() < 0 ||
      bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.number(), kBacklog) != 0) {
    throw AgentError("internal", std::string("the executor cannot listen: ") + strerror(errno));
  }
  return listener;
}

}  // namespace

Door::Door(Missing missing, Admit admit)
    : missing_(std::move(missing)), admit_(std::move(admit)), listener_(listen_on_loopback()) {}

int Door::port() const {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

void Door::watch() {
  try {
    while (true) turn();
  } catch (const std::exception& error) {
    say(std::string("the listener failed: ") + error.what() + "; the process ends");
  }
  _exit(1);
}

void Door::turn() {
  std::vector<pollfd> watched{{listener_.number(), POLLIN, 0}};
  for (const Knock& knock : waiting_) watched.push_back({knock.connection.number(), POLLIN, 0});
  const double patience_s = waiting_.empty() ? -1.0 : std::max(0.0, waiting_.front().deadline_s - seconds_now());
  const int patience_ms = waiting_.empty() ? -1 : static_cast<int>(patience_s * 1e3) + 1;
  if (poll(watched.data(), watched.size(), patience_ms) < 0) return;
  size_t place = 1;
  const double now = seconds_now();
  for (auto knock = waiting_.begin(); knock != waiting_.end();) {
    const bool spoke = watched[place++].revents != 0;
    const bool waits = spoke ? hear(&*knock) : now < knock->deadline_s;
    knock = waits ? std::next(knock) : waiting_.erase(knock);
  }
  if (watched[0].revents != 0) answer();
}

void Door::answer() {
  Descriptor connection(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.number() < 0) {
    const bool gone = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    if (!gone) usleep(kExhaustedMicroseconds);
    return;
  }
  if (waiting_.size() >= kRoom) waiting_.pop_front();
  waiting_.push_back(Knock{std::move(connection), seconds_now() + kHandshakeSeconds, {}});
}

bool Door::hear(Knock* knock) {
  std::string piece(static_cast<size_t>(std::max<int64_t>(1, missing_(knock->data))), '\0');
  const ssize_t got = recv(knock->connection.number(), piece.data(), piece.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  knock->data.append(piece, 0, static_cast<size_t>(got));
  if (missing_(knock->data) > 0) return seconds_now() < knock->deadline_s;
  try {
    admit_(std::move(knock->connection), knock->data);
  } catch (const std::exception& error) {
    // One who knocks must not close the door to the others.
    say(std::string("a first request was dropped, for which this executor has an error: ") + error.what());
  }
  return false;
}

void welcome(int connection) {
  const int yes = 1;
  fcntl(connection, F_SETFL, fcntl(connection, F_GETFL) & ~O_NONBLOCK);
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  for (const auto& [option, value] : kKeepAlive) {
    setsockopt(connection, IPPROTO_TCP, option, &value, sizeof(value));
  }
}

void say(const std::string& text) { fprintf(stderr, "%s\n", printable(text).c_str()); }

void refuse(Descriptor connection, const std::string& answer) {
  // Whoever does not listen is not waited for.
  if (send(connection.number(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

}  // namespace edgetlm
