// Streams of base64 over other streams. They hold everything in memory: the runtime writes only tensors of
// attributes with them.
#pragma once

#include <tvm/ffi/extra/base64.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

class Base64InStream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  explicit Base64InStream(Stream* source) : source_(source) {}

  // Reads and decodes the whole source; before the first read.
  void InitPosition() {
    std::string text;
    char piece[4096];
    for (size_t count; (count = source_->Read(static_cast<void*>(piece), sizeof(piece))) > 0;) {
      text.append(piece, count);
    }
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    const ffi::Bytes plain = ffi::Base64Decode(TVMFFIByteArray{text.data(), text.size()});
    bytes_.assign(plain.data(), plain.size());
    position_ = 0;
  }
  size_t Read(void* data, size_t size) override {
    const size_t count = std::min(size, bytes_.size() - position_);
    if (count > 0) std::memcpy(data, bytes_.data() + position_, count);
    position_ += count;
    return count;
  }
  size_t Write(const void*, size_t) override { return 0; }

 private:
  Stream* source_;
  std::string bytes_;
  size_t position_ = 0;
};

class Base64OutStream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  explicit Base64OutStream(Stream* target) : target_(target) {}

  size_t Read(void*, size_t) override { return 0; }
  size_t Write(const void* data, size_t size) override {
    bytes_.append(static_cast<const char*>(data), size);
    return size;
  }
  // Encodes what was written; nothing reaches the target before.
  void Finish() {
    const ffi::String text = ffi::Base64Encode(TVMFFIByteArray{bytes_.data(), bytes_.size()});
    target_->Write(static_cast<const void*>(text.data()), text.size());
    bytes_.clear();
  }

 private:
  Stream* target_;
  std::string bytes_;
};

}  // namespace support
}  // namespace tvm
