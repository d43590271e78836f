// The wire protocol of docs/wire.md: a length, a JSON header, then raw bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/json.h"

namespace edgetlm {

inline constexpr char kSchema[] = "edgetlm/1";

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
Buffer receive_blob(int connection, int64_t size);

// Length and header of a frame; `blob_bytes` is filled in.
std::string frame(const Reply& reply);
void send_frame(int connection, const Reply& reply);

// Reads a frame's header; its blob is left on the connection. AgentError where what comes is no frame.
JsonObject receive_header(int connection);

// Bytes that are missing of a first request that begins with `data`; 0 when more would be of no use.
int64_t hello_missing(const std::string& data);
// The first request of a connection; AgentError where it is no frame, or speaks another protocol.
JsonObject parse_hello(const std::string& data);

// The reply that tells the host of a failure.
Reply error_reply(const std::string& kind, const std::string& message);

// Size in bytes; AgentError where the dtype cannot travel, or the shape has no size.
size_t tensor_bytes(const std::vector<int64_t>& shape, const std::string& dtype);

// Tensors of a request; AgentError where its bytes are not as many as the descriptions say.
std::vector<TensorView> split_tensors(const Json& descriptions, const Buffer& blob);

}  // namespace edgetlm
