#include "executor/serve/server.h"

#include <limits.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "contract/protocol.h"
#include "executor/errors.h"
#include "executor/serve/rpc.h"
#include "executor/wire/fields.h"

namespace edgetlm {
namespace ffi = tvm::ffi;

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
    const Fields asked(fields, "the executor's specification");
    const std::string engine = asked.name("engine");
    if (engine != "tvm") {
      throw AgentError("bad_request", "no engine " + engine + " in the native executor; its engine is tvm");
    }
    Specification specification{static_cast<int>(asked.whole("threads", 1, limits::wire::threads)), asked.text("key"),
                                asked.text("workdir"), asked.text("trust_file"),
                                static_cast<int>(asked.whole("parent_pid", 1, INT_MAX)), {}};
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
      sensors_(specification.meter),
      meter_(&sensors_, specification.threads),
      commands_(&meter_, specification.threads, specification.trust_file),
      listener_([](const std::string& data) { return is_rpc(data) ? rpc_missing(data) : hello_missing(data); },
            [this](Descriptor connection, const std::string& data) { admit(std::move(connection), data); }) {
  register_rpc(specification.folder, &meter_, &commands_);
}

void Server::run() {
  status_->announce(JsonObject{{ffi::String("port"), static_cast<int64_t>(listener_.port())}});
  std::thread([this] { listener_.watch(); }).detach();
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
      refuse(std::move(connection), frame(error_reply(error.kind(), error.what())));
    } catch (const std::exception& error) {
      write_stderr(std::string("a client was dropped, for which this executor has an error: ") + error.what());
    }
    connection = Descriptor();
    frame_seat_.give();
  }
}

void Server::admit(Descriptor connection, const std::string& data) {
  const bool rpc = is_rpc(data);
  try {
    if (rpc && !knows_key(data, key_)) {
      refuse(std::move(connection), rpc_mismatch());
      return;
    }
    if (!rpc) {
      if (!equal_secret(Fields(parse_hello(data)).text_or("secret", ""), key_)) {
        throw AgentError("denied", "wrong secret");
      }
    }
  } catch (const AgentError& error) {
    refuse(std::move(connection), frame(error_reply(error.kind(), error.what())));
    return;
  }
  configure_connection(connection.number());
  std::thread([this, rpc, held = std::move(connection)]() mutable {
    try {
      if (rpc) {
        greet_rpc(std::move(held));
      } else {
        greet_frames(std::move(held));
      }
    } catch (const std::exception& error) {
      write_stderr(std::string("a client was dropped, for which this executor has an error: ") + error.what());
    }
  }).detach();
}

void Server::greet_frames(Descriptor connection) {
  if (!frame_seat_.take(protocol::wire::leaving_s)) {
    refuse(std::move(connection), frame(error_reply("busy", "another client is connected to this session")));
    return;
  }
  try {
    const JsonObject fields{{ffi::String("ok"), true}, {ffi::String("schema"), ffi::String(protocol::wire::schema)}};
    send_frame(connection.number(), Reply{fields, {}});
  } catch (const ClosedError&) {
    frame_seat_.give();  // whoever knocked did not stay
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.push_back(std::move(connection));
  arrived_.notify_one();
}

void Server::greet_rpc(Descriptor connection) {
  if (!rpc_seat_.take(protocol::wire::leaving_s)) {
    refuse(std::move(connection), rpc_duplicate());
    return;
  }
  try {
    const std::string welcome = rpc_welcome();
    send_all(connection.number(), welcome.data(), welcome.size());
    serve_rpc(connection.number(), [this](bool busy) { status_->set("rpc", busy); });
  } catch (const ClosedError&) {
    // Whoever knocked did not stay.
  }
  connection = Descriptor();
  rpc_seat_.give();
}

void Server::serve_frames(int connection) {
  while (true) {
    const JsonObject header = receive_header(connection);
    const int64_t size = blob_bytes(header, most_blob_bytes(header));
    const double limit_s = Fields(header).seconds_or("time_limit_s", 0.0);
    Reply reply;
    try {
      const Buffer blob = receive_blob(connection, size);
      status_->set("frames", true, limit_s);
      reply = commands_.answer(header, blob);
    } catch (const std::bad_alloc&) {
      status_->set("frames", false);
      throw AgentError("engine", "out of memory for a request");
    }
    status_->set("frames", false);
    send_frame(connection, reply);
  }
}

}  // namespace edgetlm
