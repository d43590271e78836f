#include "executor/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "executor/errors.h"
#include "executor/rpc.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr double kHandshakeSeconds = 10.0;
// A client that has just left may not be noticed yet when the next one comes.
constexpr double kLeavingSeconds = 3.0;
// The first request of a stranger is a name and a key.
constexpr size_t kMaxHelloBytes = 64 << 10;
constexpr int kBacklog = 8;

Descriptor listen_on_loopback() {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
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

int port_of(int listener) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// Checks the first request of a connection; AgentError where it speaks another protocol or has the wrong secret.
void check_hello(const JsonObject& header, const std::string& secret) {
  const Json command = find(header, "command"), schema = find(header, "schema"), given = find(header, "secret");
  if (command.as<ffi::String>().value_or("") != "hello" || schema.as<ffi::String>().value_or("") != kSchema) {
    const auto text = schema.as<ffi::String>();
    const std::string found = text ? std::string(*text) : schema == nullptr ? "None" : json_text(schema);
    throw AgentError("bad_request", std::string("protocol ") + kSchema + " expected, got " + found);
  }
  if (!equal_secret(std::string(given.as<ffi::String>().value_or("")), secret)) {
    throw AgentError("denied", "wrong secret");
  }
}

}  // namespace

bool Seat::take(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto limit = std::chrono::duration<double>(seconds);
  if (!freed_.wait_for(lock, limit, [this] { return !taken_; })) return false;
  return taken_ = true;
}

void Seat::give() {
  const std::lock_guard<std::mutex> lock(mutex_);
  taken_ = false;
  freed_.notify_one();
}

Specification specification_of(const JsonObject& fields) {
  try {
    const std::string engine = text_of(at(fields, "engine"));
    if (engine != "tvm") {
      throw AgentError("bad_request", "no engine " + engine + " in the native executor; its engine is tvm");
    }
    Specification specification{static_cast<int>(integer_of(at(fields, "threads"))), text_of(at(fields, "key")),
                                text_of(at(fields, "workdir")), static_cast<int>(integer_of(at(fields, "parent_pid"))),
                                {}};
    const Json meter = find(fields, "meter");
    if (meter != nullptr) {
      for (const Json& argument : array_of(meter)) specification.meter.push_back(text_of(argument));
    }
    if (specification.key.empty()) throw AgentError("bad_request", "a session needs a key");
    return specification;
  } catch (const FieldError& error) {
    throw AgentError("bad_request", std::string("the executor's specification: ") + error.what());
  }
}

Server::Server(const Specification& specification, Status* status)
    : key_(specification.key),
      status_(status),
      frame_sensors_(specification.meter),
      rpc_sensors_(specification.meter),
      frame_meter_(&frame_sensors_, specification.threads),
      rpc_meter_(&rpc_sensors_, specification.threads),
      commands_(&frame_meter_, specification.threads),
      listener_(listen_on_loopback()) {
  register_rpc(specification.folder, &rpc_meter_);
}

void Server::run() {
  status_->announce(JsonObject{{ffi::String("port"), static_cast<int64_t>(port_of(listener_.number()))}});
  std::thread([this] { accept_clients(); }).detach();
  while (true) {
    Descriptor connection;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [this] { return !waiting_.empty(); });
      connection = std::move(waiting_.front());
      waiting_.pop_front();
    }
    try {
      serve_frames(connection.number());
    } catch (const ClosedError&) {
      // The client went away; the daemon decides what becomes of the session.
    } catch (const AgentError& error) {
      // What came is no frame, so nothing after it can be understood.
      try {
        send_frame(connection.number(), error_reply(error.kind(), error.what()));
      } catch (const ClosedError&) {
      }
    }
    connection = Descriptor();
    frame_seat_.give();
  }
}

void Server::accept_clients() {
  while (true) {
    Descriptor connection(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.number() < 0) {
      // Out of descriptors, or the client left at once: others must still be heard.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    const int yes = 1;
    setsockopt(connection.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    std::thread([this, number = connection.release()] { greet(Descriptor(number)); }).detach();
  }
}

void Server::greet(Descriptor connection) {
  try {
    set_timeout(connection.number(), kHandshakeSeconds);
    unsigned char start[4];
    receive_exact(connection.number(), start, sizeof(start));
    if (memcmp(start, kRpcMagicBytes, sizeof(start)) == 0) {
      greet_rpc(connection.number());
    } else if (greet_frames(connection.number(), start)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(std::move(connection));
      arrived_.notify_one();
    }
  } catch (const std::exception&) {
    // Whoever knocked did not stay.
  }
}

bool Server::greet_frames(int connection, const unsigned char* start) {
  try {
    check_hello(receive_header(connection, start, kMaxHelloBytes), key_);
    if (!frame_seat_.take(kLeavingSeconds)) {
      throw AgentError("busy", "another client is connected to this session");
    }
  } catch (const AgentError& error) {
    send_frame(connection, error_reply(error.kind(), error.what()));
    return false;
  }
  try {
    send_frame(connection, Reply{JsonObject{{ffi::String("ok"), true}, {ffi::String("schema"), ffi::String(kSchema)}}, {}});
  } catch (const ClosedError&) {
    frame_seat_.give();
    throw;
  }
  set_timeout(connection, 0.0);
  return true;
}

void Server::greet_rpc(int connection) {
  bool taken = false;
  const auto take = [&] { return taken = rpc_seat_.take(kLeavingSeconds); };
  try {
    if (accept_rpc(connection, key_, take)) {
      set_timeout(connection, 0.0);
      serve_rpc(connection, [this](bool busy) { status_->set("rpc", busy); });
    }
  } catch (const ClosedError&) {
    // It left during the handshake.
  }
  if (taken) rpc_seat_.give();
}

void Server::serve_frames(int connection) {
  while (true) {
    const JsonObject header = receive_header(connection);
    const Json bytes = find(header, "blob_bytes"), limit = find(header, "time_limit_s");
    Reply reply;
    try {
      const Buffer blob = receive_blob(connection, bytes == nullptr ? 0 : integer_of(bytes));
      status_->set("frames", true, limit == nullptr ? 0.0 : number_of(limit));
      reply = commands_.answer(header, blob);
    } catch (const FieldError& error) {
      throw AgentError("bad_request", error.what());
    } catch (const std::bad_alloc&) {
      throw AgentError("engine", "out of memory for a request");
    }
    status_->set("frames", false);
    send_frame(connection, reply);
  }
}

}  // namespace edgetlm
