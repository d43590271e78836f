#include "executor/serve/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <runtime/rpc/rpc_endpoint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "contract/limits.h"
#include "contract/protocol.h"
#include "executor/errors.h"
#include "executor/measure/kernels.h"
#include "executor/wire/wire.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr int32_t kMagic = int32_t{protocol::rpc::magic};
constexpr size_t kStartBytes = 2 * sizeof(int32_t);
constexpr size_t kPieceBytes = 1 << 20;

int32_t number_at(const std::string& data, size_t offset) {
  int32_t number = 0;
  memcpy(&number, data.data() + offset, sizeof(number));
  return number;
}

std::string bytes_of(int32_t number) { return std::string(reinterpret_cast<const char*>(&number), sizeof(number)); }

// The connection as the runtime's server reads and writes it.
class Channel final : public tvm::runtime::RPCChannel {
 public:
  Channel(int connection, const std::function<void(bool)>& set_busy)
      : connection_(connection), set_busy_(set_busy) {}

  size_t Send(const void* data, size_t size) override {
    try {
      send_all(connection_, data, size);
    } catch (const ClosedError& error) {
      // The endpoint's destructor says goodbye, and expects errors of this class only.
      TVM_FFI_THROW(RuntimeError) << error.what();
    }
    return size;
  }

  size_t Recv(void* data, size_t size) override {
    set_busy_(false);
    ssize_t got;
    do {
      got = recv(connection_, data, std::min(size, kPieceBytes), 0);
    } while (got < 0 && errno == EINTR);
    set_busy_(got > 0);
    // The server takes no bytes for the end of the session.
    return got < 0 ? 0 : static_cast<size_t>(got);
  }

 private:
  const int connection_;
  const std::function<void(bool)>& set_busy_;
};

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? std::string() : std::string(resolved);
}

// The path of a file in `folder`, which need not exist yet; an error where the name leads elsewhere.
std::string work_path(const std::string& folder, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                     name.find('\0') == std::string::npos;
  const std::string path = folder + "/" + name;
  const std::string resolved = plain ? real_path(path) : std::string();
  // An upload under the name of a symbolic link would follow it.
  if (!plain || (!resolved.empty() && resolved != path)) {
    TVM_FFI_THROW(PermissionError) << one_line(name) << " lies outside the session's folder";
  }
  return path;
}

// Writes an upload whole or not at all; TVM's own leaves a part where the disk is full, and says nothing.
void write_upload(const std::string& path, const ffi::Bytes& data) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  int error = file.number() < 0 ? errno : 0;
  for (size_t written = 0; error == 0 && written < data.size();) {
    const ssize_t count = write(file.number(), data.data() + written, data.size() - written);
    if (count >= 0) written += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR) error = errno;
  }
  if (error == 0) return;
  if (file.number() >= 0) unlink(path.c_str());
  const std::string name = path.substr(path.rfind('/') + 1);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    TVM_FFI_THROW(RuntimeError) << "no space left on the device for " << name
                                << "; remove bundles or free some";
  }
  TVM_FFI_THROW(RuntimeError) << name << " cannot be written: " << strerror(error);
}

// Registers a function of the executor's own that answers with a text.
void register_answer(const char* name, const std::function<std::string(ffi::PackedArgs)>& answer) {
  const auto function = [answer](ffi::PackedArgs arguments, ffi::Any* result) {
    try {
      *result = ffi::String(answer(arguments));
    } catch (const ffi::Error&) {
      throw;
    } catch (const std::exception& error) {
      // The runtime's C interface carries errors of its own class only.
      TVM_FFI_THROW(RuntimeError) << error.what();
    }
  };
  ffi::Function::SetGlobal(name, ffi::Function::FromPacked(function), true);
}

}  // namespace

bool equal_secret(const std::string& given, const std::string& secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference = static_cast<unsigned char>(difference | (given[i] ^ expected));
  }
  return difference == 0;
}

bool is_rpc(const std::string& data) {
  return data.size() >= sizeof(kMagic) && number_at(data, 0) == kMagic;
}

int64_t rpc_missing(const std::string& data) {
  if (data.size() < kStartBytes) return static_cast<int64_t>(kStartBytes - data.size());
  const int32_t length = number_at(data, sizeof(kMagic));
  if (length <= 0 || length > limits::wire::rpc_key_bytes) return 0;
  return static_cast<int64_t>(kStartBytes) + length - static_cast<int64_t>(data.size());
}

bool knows_key(const std::string& data, const std::string& key) {
  if (data.size() <= kStartBytes) return false;
  const std::string given = data.substr(kStartBytes);
  return equal_secret(given.substr(0, given.find(' ')), "client:" + key);
}

std::string rpc_welcome() {
  const std::string name = protocol::rpc::server;
  return bytes_of(kMagic) + bytes_of(static_cast<int32_t>(name.size())) + name;
}

std::string rpc_duplicate() { return bytes_of(kMagic + 1); }

std::string rpc_mismatch() { return bytes_of(kMagic + 2); }

void register_rpc(const std::string& folder, Meter* meter, Commands* commands) {
  const std::string real = real_path(folder);
  if (real.empty()) throw AgentError("internal", "the session's folder " + folder + " is missing");
  ffi::Function::SetGlobal("tvm.rpc.server.workpath",
                           ffi::Function::FromTyped([real](const ffi::String& name) {
                             return ffi::String(work_path(real, std::string(name)));
                           }),
                           true);
  ffi::Function::SetGlobal("tvm.rpc.server.load_module",
                           ffi::Function::FromTyped([real](const ffi::String& name) {
                             return ffi::Module::LoadFromFile(work_path(real, std::string(name)));
                           }),
                           true);
  ffi::Function::SetGlobal("tvm.rpc.server.upload",
                           ffi::Function::FromTyped([real](const ffi::String& name, const ffi::Bytes& data) {
                             write_upload(work_path(real, std::string(name)), data);
                           }),
                           true);
  register_answer("edgetlm.measure", [meter](ffi::PackedArgs arguments) {
    std::vector<ffi::AnyView> tensors;
    for (int i = 3; i < arguments.size(); ++i) tensors.push_back(arguments[i]);
    return measure_kernel(meter, arguments[0].cast<ffi::Module>(), arguments[1].cast<std::string>(),
                          arguments[2].cast<std::string>(), std::move(tensors));
  });
  register_answer("edgetlm.measure_variants", [commands](ffi::PackedArgs arguments) {
    std::vector<ffi::Module> libraries;
    for (int i = 1; i < arguments.size(); ++i) libraries.push_back(arguments[i].cast<ffi::Module>());
    return commands->measure_variants(arguments[0].cast<std::string>(), libraries);
  });
}

void serve_rpc(int connection, const std::function<void(bool)>& set_busy) {
  try {
    auto channel = std::make_unique<Channel>(connection, set_busy);
    tvm::runtime::RPCEndpoint::Create(std::move(channel), "edgetlm", "")->ServerLoop();
  } catch (const std::exception&) {
    // The client went away in the middle of a message; the session waits for the next one.
  }
  set_busy(false);
}

}  // namespace edgetlm
