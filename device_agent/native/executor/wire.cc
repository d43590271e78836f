#include "executor/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "executor/errors.h"

namespace edgetlm {
namespace {

struct ItemSize {
  const char* dtype;
  size_t bytes;
};

constexpr ItemSize kItems[] = {
    {"bool", 1},    {"int8", 1},     {"uint8", 1}, {"int16", 2},  {"uint16", 2},  {"float16", 2}, {"bfloat16", 2},
    {"int32", 4},   {"uint32", 4},   {"float32", 4}, {"int64", 8}, {"uint64", 8}, {"float64", 8},
};
constexpr int64_t kMaxBlobBytes = int64_t{1} << 40;
constexpr uint32_t kMaxHeaderBytes = 64 << 20;
// The first request of a stranger is a name and a key.
constexpr uint32_t kMaxHelloBytes = 4 << 10;

[[noreturn]] void no_frame(uint32_t length) {
  throw AgentError("bad_request",
                   "frame header of " + std::to_string(length) + " bytes is not of protocol " + kSchema);
}

// The length that begins a frame.
uint32_t announced(const std::string& data) {
  uint32_t length = 0;
  memcpy(&length, data.data(), sizeof(length));
  return ntohl(length);
}

JsonObject parse_header(const std::string& text) {
  Json header;
  try {
    header = parse_json(text);
  } catch (const std::invalid_argument& error) {
    throw AgentError("bad_request", std::string("frame header is not JSON: ") + error.what());
  }
  const auto object = header.as<JsonObject>();
  const Json bytes = object ? find(*object, "blob_bytes") : Json(nullptr);
  if (!object || (bytes != nullptr && bytes.type_index() != tvm::ffi::TypeIndex::kTVMFFIInt)) {
    throw AgentError("bad_request", std::string("frame header is not an object of protocol ") + kSchema);
  }
  return *object;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

int Descriptor::release() { return std::exchange(number_, -1); }

void send_all(int connection, const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(connection, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw ClosedError(std::string("sending failed: ") + strerror(errno));
    next += sent;
    size -= static_cast<size_t>(sent);
  }
}

void receive_exact(int connection, void* data, size_t size) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(connection, next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ClosedError(std::string("receiving failed: ") + strerror(errno));
    if (got == 0) throw ClosedError("connection closed");
    next += got;
    size -= static_cast<size_t>(got);
  }
}

Buffer receive_blob(int connection, int64_t size) {
  if (size < 0 || size > kMaxBlobBytes) {
    throw AgentError("bad_request", "a frame cannot have " + std::to_string(size) + " bytes");
  }
  Buffer blob{std::unique_ptr<char[]>(new char[static_cast<size_t>(size)]), static_cast<size_t>(size)};
  receive_exact(connection, blob.data.get(), blob.size);
  return blob;
}

std::string frame(const Reply& reply) {
  JsonObject complete = reply.fields;
  int64_t total = 0;
  for (const Blob& blob : reply.blobs) total += static_cast<int64_t>(blob.size);
  complete.Set(tvm::ffi::String("blob_bytes"), total);
  const std::string text = json_text(complete);
  const uint32_t length = htonl(static_cast<uint32_t>(text.size()));
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

void send_frame(int connection, const Reply& reply) {
  const std::string start = frame(reply);
  send_all(connection, start.data(), start.size());
  for (const Blob& blob : reply.blobs) send_all(connection, blob.data, blob.size);
}

JsonObject receive_header(int connection) {
  uint32_t prefix = 0;
  receive_exact(connection, &prefix, sizeof(prefix));
  const uint32_t length = ntohl(prefix);
  if (length > kMaxHeaderBytes) no_frame(length);
  std::string text(length, '\0');
  receive_exact(connection, text.data(), text.size());
  return parse_header(text);
}

int64_t hello_missing(const std::string& data) {
  if (data.size() < sizeof(uint32_t)) return static_cast<int64_t>(sizeof(uint32_t) - data.size());
  const uint32_t length = announced(data);
  if (length > kMaxHelloBytes) return 0;
  return static_cast<int64_t>(sizeof(length)) + length - static_cast<int64_t>(data.size());
}

JsonObject parse_hello(const std::string& data) {
  const uint32_t length = announced(data);
  if (length > kMaxHelloBytes) no_frame(length);
  const JsonObject header = parse_header(data.substr(sizeof(length)));
  const Json command = find(header, "command"), schema = find(header, "schema");
  if (command.as<tvm::ffi::String>().value_or("") == "hello" &&
      schema.as<tvm::ffi::String>().value_or("") == kSchema) {
    return header;
  }
  const auto text = schema.as<tvm::ffi::String>();
  const std::string found = text ? std::string(*text) : schema == nullptr ? "None" : json_text(schema);
  throw AgentError("bad_request", std::string("protocol ") + kSchema + " expected, got " + found);
}

Reply error_reply(const std::string& kind, const std::string& message) {
  const JsonObject error{{tvm::ffi::String("kind"), tvm::ffi::String(kind)},
                         {tvm::ffi::String("message"), tvm::ffi::String(one_line(message))}};
  return Reply{JsonObject{{tvm::ffi::String("ok"), false}, {tvm::ffi::String("error"), error}}, {}};
}

size_t tensor_bytes(const std::vector<int64_t>& shape, const std::string& dtype) {
  const ItemSize* item = std::find_if(std::begin(kItems), std::end(kItems),
                                      [&](const ItemSize& known) { return dtype == known.dtype; });
  if (item == std::end(kItems)) {
    std::string names;
    for (const ItemSize& known : kItems) names += (names.empty() ? "" : ", ") + std::string(known.dtype);
    throw AgentError("bad_request", "dtype " + dtype + " cannot be sent; use one of " + names);
  }
  size_t size = item->bytes;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(size, static_cast<size_t>(dimension), &size)) {
      throw AgentError("bad_request", "a tensor of shape " + json_text(json_of(shape)) + " cannot be sent");
    }
  }
  return size;
}

std::vector<TensorView> split_tensors(const Json& descriptions, const Buffer& blob) {
  std::vector<TensorView> tensors;
  size_t position = 0;
  for (const Json& entry : array_of(descriptions)) {
    const JsonObject description = object_of(entry);
    TensorView tensor{integers_of(at(description, "shape")), text_of(at(description, "dtype"))};
    tensor.size = tensor_bytes(tensor.shape, tensor.dtype);
    tensor.data = blob.data.get() + std::min(position, blob.size);
    position += tensor.size;
    tensors.push_back(std::move(tensor));
    if (position > blob.size) break;
  }
  if (position != blob.size) {
    throw AgentError("bad_request", "tensors of " + std::to_string(position) + " bytes in a blob of " +
                                        std::to_string(blob.size));
  }
  return tensors;
}

}  // namespace edgetlm
