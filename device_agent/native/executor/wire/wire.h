// The wire protocol of docs/wire.md: a length, a JSON header, then raw bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/wire/json.h"

namespace edgetlm {

// A file descriptor that is closed with it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int number() const { return number_; }
  int release();

 private:
  int number_ = -1;
};

// Bytes that travel, and what keeps them alive.
struct Blob {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  size_t size = 0;
};

// The bytes of a request.
struct Buffer {
  std::unique_ptr<char[]> data;
  size_t size = 0;
};

struct Reply {
  JsonObject fields;
  std::vector<Blob> blobs;
};

// One tensor out of a request's bytes.
struct TensorView {
  std::vector<int64_t> shape;
  std::string dtype;
  const char* data = nullptr;
  size_t size = 0;
};

// ClosedError where the peer is gone.
void send_all(int connection, const void* data, size_t size);
void receive_exact(int connection, void* data, size_t size);
// The system gives memory as it is written to: as bytes come, and not as they were announced.
Buffer receive_blob(int connection, int64_t size);

// Length and header of a frame; `blob_bytes` is filled in.
std::string frame(const Reply& reply);
void send_frame(int connection, const Reply& reply);

// Reads a frame's header; its blob is left on the connection. AgentError where what comes is no frame.
JsonObject receive_header(int connection);
// The header that begins with its length; AgentError where there is none, or more than it.
JsonObject parse_frame(const std::string& data);
// Size of a frame's blob; AgentError where it is larger than the limit: it is not read, so nothing that follows
// can be understood.
int64_t blob_bytes(const JsonObject& header, int64_t limit);
// Largest blob of a command of an executor: what the protocol allows, and never more than this machine's memory.
int64_t most_blob_bytes(const JsonObject& header);

// Bytes that are missing of a first request that begins with `data`; 0 when more would be of no use.
int64_t hello_missing(const std::string& data);
// The first request of a connection; AgentError where it is no frame, or speaks another protocol.
JsonObject parse_hello(const std::string& data);

// The reply that reports a failure to the host.
Reply error_reply(const std::string& kind, const std::string& message);

// Size in bytes; AgentError where the dtype cannot travel, or the shape has no size.
size_t tensor_bytes(const std::vector<int64_t>& shape, const std::string& dtype);

// The tensors that the field "tensors" of a header describes, whose bytes follow one another, without their bytes;
// AgentError where it describes none, or others than of so many bytes in all.
std::vector<TensorView> described_tensors(const JsonObject& header, int64_t available);
// The same, with the bytes of a request.
std::vector<TensorView> split_tensors(const JsonObject& header, const Buffer& blob);

}  // namespace edgetlm
