// Memory in huge pages, for what a language model reads whole for every token: its weights, keys and values.
// See device_agent/execute/memory/pages.py.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "contract/free_memory.h"

namespace edgetlm {

// Whether the system gives huge pages to memory that asks for them.
inline bool has_huge_pages(const char* setting = "/sys/kernel/mm/transparent_hugepage/enabled") {
  std::ifstream file(setting);
  std::string text;
  return static_cast<bool>(std::getline(file, text)) && text.find("[never]") == std::string::npos;
}

// Whether this process can get memory for a copy of some bytes, and as much again for others.
inline bool has_room(size_t size) {
  const int64_t free = free_bytes();
  return free >= 0 && static_cast<uint64_t>(free) / 2 >= size;
}

// Memory of this process alone that is zero, in huge pages where the system has them; at a multiple of 2 MiB.
class Pages {
 public:
  explicit Pages(size_t size) : size_(size + kHuge) {
    mapped_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) {
      throw std::runtime_error("no memory for " + std::to_string(size) + " bytes: " + strerror(errno));
    }
#ifdef MADV_HUGEPAGE
    // A kernel may refuse it: the memory is as good, and slower.
    if (has_huge_pages()) madvise(mapped_, size_, MADV_HUGEPAGE);
#endif
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(mapped_, size_); }

  char* begin() const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(mapped_);
    return reinterpret_cast<char*>((address + kHuge - 1) / kHuge * kHuge);
  }

  // Reads so many bytes of a file from its beginning; false where it has less of them, or cannot be read.
  bool fill(int file, size_t count) const {
    for (size_t done = 0; done < count;) {
      const ssize_t got = pread(file, begin() + done, count - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      done += static_cast<size_t>(got);
    }
    return true;
  }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  size_t size_;
  void* mapped_;
};

}  // namespace edgetlm
