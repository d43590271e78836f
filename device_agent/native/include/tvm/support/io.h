// Byte streams with typed reads and writes: the interface that TVM's runtime sources expect under this name,
// written for this project because the wheels leave the original out.
#pragma once

#include <cstddef>
#include <type_traits>

namespace tvm {
namespace support {

// How a type is written and read; see serializer.h.
template <typename T, typename Enable = void>
struct Serializer;

class Stream {
 public:
  virtual ~Stream() = default;

  // Reads up to `size` bytes; returns how many came.
  virtual size_t Read(void* data, size_t size) = 0;
  // Writes all bytes; returns how many were taken.
  virtual size_t Write(const void* data, size_t size) = 0;

  template <typename T>
  void Write(const T& value) {
    Serializer<T>::Write(this, value);
  }

  template <typename T>
  bool Read(T* value) {
    return Serializer<T>::Read(this, value);
  }

  // Numbers go in one piece, anything else one by one.
  template <typename T>
  void WriteArray(const T* values, size_t count) {
    if constexpr (std::is_arithmetic_v<T>) {
      Write(static_cast<const void*>(values), count * sizeof(T));
    } else {
      for (size_t i = 0; i < count; ++i) Serializer<T>::Write(this, values[i]);
    }
  }

  template <typename T>
  bool ReadArray(T* values, size_t count) {
    if constexpr (std::is_arithmetic_v<T>) {
      return Read(static_cast<void*>(values), count * sizeof(T)) == count * sizeof(T);
    } else {
      for (size_t i = 0; i < count; ++i) {
        if (!Serializer<T>::Read(this, values + i)) return false;
      }
      return true;
    }
  }
};

}  // namespace support
}  // namespace tvm
