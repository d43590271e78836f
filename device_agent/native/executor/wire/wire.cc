#include "executor/wire/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "contract/protocol.h"
#include "contract/text/text.h"
#include "executor/errors.h"
#include "executor/wire/fields.h"

namespace edgetlm {
namespace {

[[noreturn]] void no_frame(uint32_t length) {
  throw AgentError("bad_request",
                   "frame header of " + std::to_string(length) + " bytes is not of protocol " + protocol::wire::schema);
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
    throw AgentError("bad_request", std::string("a frame header: ") + error.what());
  }
  if (const auto object = header.as<JsonObject>()) {
    const auto bytes = object->find(tvm::ffi::String("blob_bytes"));
    if (bytes == object->end()) return *object;
    const Json size = (*bytes).second;
    if (size.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt && size.cast<int64_t>() >= 0) return *object;
  }
  throw AgentError("bad_request", std::string("frame header is not an object of protocol ") + protocol::wire::schema);
}

// What is larger than any blob counts as that.
int64_t product(int64_t size, int64_t dimension) {
  if (dimension == 0) return 0;
  return size > limits::wire::blob_bytes / dimension ? limits::wire::blob_bytes + 1 : size * dimension;
}

int64_t item_bytes(const Fields& description, const std::string& dtype) {
  std::string names;
  for (const ItemBytes& known : kItemBytes) {
    if (dtype == known.dtype) return known.bytes;
    names += (names.empty() ? "" : ", ") + std::string(known.dtype);
  }
  description.fail("dtype '" + dtype + "' cannot be sent; use one of " + names);
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
  if (start.size() - sizeof(uint32_t) > limits::wire::header_bytes) {
    send_frame(connection, error_reply("bad_request", "the answer's header has " +
                                                          std::to_string(start.size() - sizeof(uint32_t)) +
                                                          " bytes, at most " +
                                                          std::to_string(limits::wire::header_bytes) +
                                                          " are sent; ask for less"));
    return;
  }
  send_all(connection, start.data(), start.size());
  for (const Blob& blob : reply.blobs) send_all(connection, blob.data, blob.size);
}

JsonObject receive_header(int connection) {
  uint32_t prefix = 0;
  receive_exact(connection, &prefix, sizeof(prefix));
  const uint32_t length = ntohl(prefix);
  if (length > limits::wire::request_bytes) no_frame(length);
  std::string text(length, '\0');
  receive_exact(connection, text.data(), text.size());
  return parse_header(text);
}

JsonObject parse_frame(const std::string& data) {
  if (data.size() < sizeof(uint32_t)) throw ClosedError("connection closed");
  const uint32_t length = announced(data);
  if (length > limits::wire::request_bytes) no_frame(length);
  if (data.size() < sizeof(length) + length) throw ClosedError("connection closed");
  return parse_header(data.substr(sizeof(length), length));
}

int64_t blob_bytes(const JsonObject& header, int64_t limit) {
  const Json bytes = find(header, "blob_bytes");
  const int64_t size = bytes == nullptr ? 0 : bytes.cast<int64_t>();
  if (size <= limit) return size;
  const auto command = find(header, "command").as<tvm::ffi::String>();
  throw AgentError("bad_request", std::to_string(size) + " bytes were announced for " +
                                      (command ? std::string(*command) : std::string("no command")) + ", at most " +
                                      std::to_string(limit) + " are taken; the connection ends");
}

int64_t most_blob_bytes(const JsonObject& header) {
  const std::string command(find(header, "command").as<tvm::ffi::String>().value_or(""));
  if (command != "inputs" && command != "run") return 0;
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return std::min(limits::wire::blob_bytes, memory);
}

int64_t hello_missing(const std::string& data) {
  if (data.size() < sizeof(uint32_t)) return static_cast<int64_t>(sizeof(uint32_t) - data.size());
  const uint32_t length = announced(data);
  if (length > limits::wire::hello_bytes) return 0;
  return static_cast<int64_t>(sizeof(length)) + length - static_cast<int64_t>(data.size());
}

JsonObject parse_hello(const std::string& data) {
  const uint32_t length = data.size() < sizeof(uint32_t) ? 0 : announced(data);
  if (hello_missing(data) != 0 || length > limits::wire::hello_bytes) no_frame(length);
  const JsonObject header = parse_header(data.substr(sizeof(length)));
  const Json command = find(header, "command"), schema = find(header, "schema");
  if (command.as<tvm::ffi::String>().value_or("") != "hello" ||
      schema.as<tvm::ffi::String>().value_or("") != protocol::wire::schema) {
    const auto text = schema.as<tvm::ffi::String>();
    const std::string found = text ? std::string(*text) : schema == nullptr ? "None" : json_text(schema);
    throw AgentError("bad_request", std::string("protocol ") + protocol::wire::schema + " expected, got " +
                                        printable(found, limits::wire::name_characters));
  }
  blob_bytes(header, 0);
  const Fields fields(header, "hello");
  for (const char* name : {"client", "identity", "secret"}) fields.text_or(name, "");
  return header;
}

Reply error_reply(const std::string& kind, const std::string& message) {
  const JsonObject error{{tvm::ffi::String("kind"), tvm::ffi::String(kind)},
                         {tvm::ffi::String("message"), tvm::ffi::String(printable(message, limits::wire::message_characters))}};
  return Reply{JsonObject{{tvm::ffi::String("ok"), false}, {tvm::ffi::String("error"), error}}, {}};
}

size_t tensor_bytes(const std::vector<int64_t>& shape, const std::string& dtype) {
  const Fields fields(JsonObject(), "a tensor");
  int64_t size = item_bytes(fields, dtype);
  for (const int64_t dimension : shape) {
    if (dimension < 0 || dimension > limits::wire::dimension) size = limits::wire::blob_bytes + 1;
  }
  for (const int64_t dimension : shape) size = product(size, std::max<int64_t>(dimension, 0));
  const bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t dimension) { return dimension < 0; });
  if (negative || size > limits::wire::blob_bytes) {
    throw AgentError("bad_request", "a tensor of shape " + json_text(json_of(shape)) + " cannot be sent");
  }
  return static_cast<size_t>(size);
}

std::vector<TensorView> described_tensors(const JsonObject& header, int64_t available) {
  const Fields fields(header);
  std::vector<TensorView> tensors;
  int64_t total = 0;
  for (const Json& entry : fields.items("tensors", limits::wire::tensors)) {
    const auto object = entry.as<JsonObject>();
    if (!object) fields.wrong("tensors", "a list of objects");
    const Fields description(*object, "tensors");
    TensorView tensor;
    for (const Json& value : description.items("shape", limits::wire::rank)) {
      const bool whole = value.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt;
      tensor.shape.push_back(whole ? value.cast<int64_t>() : -1);
      if (tensor.shape.back() < 0 || tensor.shape.back() > limits::wire::dimension) {
        description.wrong("shape", "a list of sizes");
      }
    }
    tensor.dtype = description.text("dtype", limits::wire::name_characters);
    int64_t size = item_bytes(description, tensor.dtype);
    // A size of 0 makes none of what comes before it.
    const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    for (const int64_t dimension : tensor.shape) size = empty ? 0 : product(size, dimension);
    tensor.size = static_cast<size_t>(size);
    total = std::min(total + size, limits::wire::blob_bytes + 1);
    tensors.push_back(std::move(tensor));
  }
  if (total != available || total > limits::wire::blob_bytes) {
    throw AgentError("bad_request", "tensors of " + std::to_string(total) + " bytes in a blob of " +
                                        std::to_string(available));
  }
  return tensors;
}

std::vector<TensorView> split_tensors(const JsonObject& header, const Buffer& blob) {
  std::vector<TensorView> tensors = described_tensors(header, static_cast<int64_t>(blob.size));
  const char* next = blob.data.get();
  for (TensorView& tensor : tensors) {
    tensor.data = next;
    next += tensor.size;
  }
  return tensors;
}

}  // namespace edgetlm
