// A listener that admits a client when its whole first request has arrived and has the secret. It does the same as
// device_agent/wire/listener.py.
#pragma once

#include <functional>
#include <list>
#include <string>

#include "executor/wire/wire.h"

namespace edgetlm {

class Listener {
 public:
  // How many bytes are missing of the first request that begins with these; 0 or less when it is complete.
  using Missing = std::function<int64_t(const std::string&)>;
  // Takes a connection and its first request; it answers at once, in the listener's thread. The connection does not
  // block then, and nothing that follows the request was read.
  using Admit = std::function<void(Descriptor, const std::string&)>;

  // Listens on the loopback interface, on any port; AgentError where it cannot.
  Listener(Missing missing, Admit admit);

  int port() const;
  // Answers for ever. Where that cannot go on the process ends: it must not live on as one that nobody can reach.
  [[noreturn]] void watch();

 private:
  // A connection that is not admitted yet.
  struct PendingConnection {
    Descriptor connection;
    double deadline_s;
    std::string data;
  };

  void poll_once();
  void accept_connection();
  // Whether it is still pending.
  bool receive(PendingConnection* pending);

  const Missing missing_;
  const Admit admit_;
  Descriptor socket_;
  // In the order in which they came, which is that of their deadlines.
  std::list<PendingConnection> pending_;
};

// Configures an admitted connection: it blocks, sends at once, and ends if its peer is gone.
void configure_connection(int connection);

// Writes a line to stderr.
void write_stderr(const std::string& text);

// Sends a last answer, if it can be sent at once.
void refuse(Descriptor connection, const std::string& answer);

}  // namespace edgetlm
