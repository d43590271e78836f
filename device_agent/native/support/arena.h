// Memory for the arguments of one RPC call, given back all at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace tvm {
namespace support {

class Arena {
 public:
  // Room for `count` trivial objects, until RecycleAll.
  template <typename T>
  T* allocate_(int count = 1) {
    const size_t size = sizeof(T) * static_cast<size_t>(std::max(count, 1));
    size_t start = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (pages_.empty() || start + size > capacity_) {
      capacity_ = std::max(size, kPageBytes);
      // Memory of operator new suits every fundamental alignment.
      pages_.push_back(std::make_unique<char[]>(capacity_));
      start = 0;
    }
    used_ = start + size;
    return reinterpret_cast<T*>(pages_.back().get() + start);
  }

  // Frees everything but one page of the usual size.
  void RecycleAll() {
    if (pages_.size() > 1 || capacity_ > kPageBytes) {
      pages_.clear();
      capacity_ = 0;
    }
    used_ = 0;
  }

 private:
  static constexpr size_t kPageBytes = 16 << 10;
  std::vector<std::unique_ptr<char[]>> pages_;
  size_t used_ = 0;
  size_t capacity_ = 0;
};

}  // namespace support
}  // namespace tvm
