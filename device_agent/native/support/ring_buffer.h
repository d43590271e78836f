// A queue of bytes between a channel and the RPC endpoint. Its bytes lie in one piece, so that a channel reads
// and writes without wrapping; what a large upload took is given back when it has passed.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

namespace tvm {
namespace support {

class RingBuffer {
 public:
  size_t bytes_available() const { return end_ - begin_; }

  // Makes room for `size` bytes in all, those that are in it included.
  void Reserve(size_t size) {
    if (begin_ + size <= capacity_) return;
    if (size <= capacity_) {
      std::memmove(data_.get(), data_.get() + begin_, bytes_available());
    } else {
      const size_t grown = std::max({size, kUsualBytes, capacity_ + capacity_ / 2});
      std::unique_ptr<char[]> larger(new char[grown]);
      if (bytes_available() > 0) std::memcpy(larger.get(), data_.get() + begin_, bytes_available());
      data_ = std::move(larger);
      capacity_ = grown;
    }
    end_ -= begin_;
    begin_ = 0;
  }

  void Read(void* data, size_t size) {
    TVM_FFI_ICHECK_LE(size, bytes_available()) << "the peer sent less than it announced";
    std::memcpy(data, data_.get() + begin_, size);
    Drop(size);
  }

  void Write(const void* data, size_t size) {
    Reserve(bytes_available() + size);
    std::memcpy(data_.get() + end_, data, size);
    end_ += size;
  }

  // Hands at most `limit` bytes to `send(pointer, size)`, which says how many it took.
  template <typename Send>
  size_t ReadWithCallback(Send send, size_t limit) {
    const size_t count = send(data_.get() + begin_, std::min(limit, bytes_available()));
    Drop(count);
    return count;
  }

  // Has `receive(pointer, size)` put at most `limit` bytes in; it says how many came.
  template <typename Receive>
  size_t WriteWithCallback(Receive receive, size_t limit) {
    // A size that the peer announced is reserved as its bytes come.
    const size_t piece = std::min(limit, kLargeBytes);
    Reserve(bytes_available() + piece);
    const size_t count = receive(data_.get() + end_, piece);
    end_ += count;
    return count;
  }

 private:
  static constexpr size_t kUsualBytes = 4 << 10;
  static constexpr size_t kLargeBytes = 1 << 20;

  void Drop(size_t count) {
    begin_ += count;
    if (begin_ < end_) return;
    begin_ = end_ = 0;
    if (capacity_ > kLargeBytes) {
      data_.reset();
      capacity_ = 0;
    }
  }

  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace support
}  // namespace tvm
