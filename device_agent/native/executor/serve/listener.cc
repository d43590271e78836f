#include "executor/serve/listener.h"

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

#include "contract/limits.h"
#include "contract/protocol.h"
#include "contract/text/text.h"
#include "executor/clock.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

constexpr int kBacklog = 64;
constexpr useconds_t kExhaustedMicroseconds = static_cast<useconds_t>(protocol::wire::exhausted_s * 1e6);
constexpr std::pair<int, int> kKeepAlive[] = {{TCP_KEEPIDLE, protocol::wire::keep_alive_idle_s},
                                              {TCP_KEEPINTVL, protocol::wire::keep_alive_interval_s},
                                              {TCP_KEEPCNT, protocol::wire::keep_alive_probes}};

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

Listener::Listener(Missing missing, Admit admit)
    : missing_(std::move(missing)), admit_(std::move(admit)), socket_(listen_on_loopback()) {}

int Listener::port() const {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

void Listener::watch() {
  try {
    while (true) poll_once();
  } catch (const std::exception& error) {
    write_stderr(std::string("the listener failed: ") + error.what() + "; the process ends");
  }
  _exit(1);
}

void Listener::poll_once() {
  std::vector<pollfd> watched{{socket_.number(), POLLIN, 0}};
  for (const PendingConnection& pending : pending_) watched.push_back({pending.connection.number(), POLLIN, 0});
  const double patience_s = pending_.empty() ? -1.0 : std::max(0.0, pending_.front().deadline_s - seconds_now());
  const int patience_ms = pending_.empty() ? -1 : static_cast<int>(patience_s * 1e3) + 1;
  if (poll(watched.data(), watched.size(), patience_ms) < 0) return;
  size_t place = 1;
  const double now = seconds_now();
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const bool spoke = watched[place++].revents != 0;
    const bool waits = spoke ? receive(&*pending) : now < pending->deadline_s;
    pending = waits ? std::next(pending) : pending_.erase(pending);
  }
  if (watched[0].revents != 0) accept_connection();
}

void Listener::accept_connection() {
  Descriptor connection(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.number() < 0) {
    const bool gone = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    if (!gone) usleep(kExhaustedMicroseconds);
    return;
  }
  // Those that have a secret say it at once: where there are too many, the one that has been silent for longest goes.
  if (pending_.size() >= static_cast<size_t>(limits::wire::pending_connections)) pending_.pop_front();
  pending_.push_back(PendingConnection{std::move(connection), seconds_now() + static_cast<double>(limits::wire::hello_s), {}});
}

bool Listener::receive(PendingConnection* pending) {
  std::string piece(static_cast<size_t>(std::max<int64_t>(1, missing_(pending->data))), '\0');
  const ssize_t got = recv(pending->connection.number(), piece.data(), piece.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  pending->data.append(piece, 0, static_cast<size_t>(got));
  if (missing_(pending->data) > 0) return seconds_now() < pending->deadline_s;
  try {
    admit_(std::move(pending->connection), pending->data);
  } catch (const std::exception& error) {
    // One connection must not end the listener for the others.
    write_stderr(std::string("a first request was dropped, for which this executor has an error: ") + error.what());
  }
  return false;
}

void configure_connection(int connection) {
  const int yes = 1;
  fcntl(connection, F_SETFL, fcntl(connection, F_GETFL) & ~O_NONBLOCK);
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  for (const auto& [option, value] : kKeepAlive) {
    setsockopt(connection, IPPROTO_TCP, option, &value, sizeof(value));
  }
}

void write_stderr(const std::string& text) { fprintf(stderr, "%s\n", printable(text).c_str()); }

void refuse(Descriptor connection, const std::string& answer) {
  // Whoever does not listen is not waited for.
  if (send(connection.number(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

}  // namespace edgetlm
