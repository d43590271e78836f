// The process of one session, for boards without a Python that TVM's wheels fit. It does the same as
// device_agent/execute/executor.py: the same specification on stdin, the same lines on stdout, the same protocols.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "executor/errors.h"
#include "executor/reading.h"
#include "executor/serve/server.h"

namespace {

constexpr int kLargeBytes = 1 << 20;
// The program, --read, and the kind of the inputs.
constexpr int kReadWords = 3;

// Has the kernel kill this process when its parent ends, however that ends.
void die_with_parent(int parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != parent) _exit(1);
}

}  // namespace

int main(int count, char** words) {
  if (count == kReadWords && std::string(words[1]) == "--read") return edgetlm::read_inputs(words[2]);
  // Libraries print to stdout; the daemon's pipe is kept from them.
  edgetlm::Status status(dup(STDOUT_FILENO));
  dup2(STDERR_FILENO, STDOUT_FILENO);
  // The call that fails reports both.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  // Left alone, the C library takes a large upload for usual and keeps its memory.
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  std::string line;
  std::getline(std::cin, line);
  try {
    const edgetlm::Specification specification =
        edgetlm::specification_of(edgetlm::object_of(edgetlm::parse_json(line)));
    die_with_parent(specification.parent);
    // A model that crashes says why; its memory would fill the board's card.
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    edgetlm::Server(specification, &status).run();
  } catch (const edgetlm::AgentError& error) {
    status.announce(edgetlm::error_reply(error.kind(), error.what()).fields);
  } catch (const std::exception& error) {
    status.announce(edgetlm::error_reply("internal", error.what()).fields);
  }
  return 1;
}
