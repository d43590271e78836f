// The runtime's binary format: numbers in little-endian order, sequences after a 64-bit count. Every board that
// the executor is built for is little-endian, so numbers are copied as they lie.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/endian.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

static_assert(TVM_FFI_IO_NO_ENDIAN_SWAP, "the executor is for little-endian machines");

namespace tvm {
namespace support {

template <typename T>
struct Serializer<T, std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const T& value) {
    stream->Write(static_cast<const void*>(&value), sizeof(T));
  }
  static bool Read(Stream* stream, T* value) {
    return stream->Read(static_cast<void*>(value), sizeof(T)) == sizeof(T);
  }
};

template <>
struct Serializer<DLDataType> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const DLDataType& type) {
    stream->Write(type.code);
    stream->Write(type.bits);
    stream->Write(type.lanes);
  }
  static bool Read(Stream* stream, DLDataType* type) {
    return stream->Read(&type->code) && stream->Read(&type->bits) && stream->Read(&type->lanes);
  }
};

template <>
struct Serializer<DLDevice> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const DLDevice& device) {
    stream->Write(static_cast<int32_t>(device.device_type));
    stream->Write(static_cast<int32_t>(device.device_id));
  }
  static bool Read(Stream* stream, DLDevice* device) {
    int32_t type = 0, id = 0;
    if (!stream->Read(&type) || !stream->Read(&id)) return false;
    device->device_type = static_cast<DLDeviceType>(type);
    device->device_id = id;
    return true;
  }
};

template <>
struct Serializer<std::string> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const std::string& text) {
    stream->Write(static_cast<uint64_t>(text.size()));
    stream->Write(static_cast<const void*>(text.data()), text.size());
  }
  static bool Read(Stream* stream, std::string* text) {
    // A damaged count must not make the process reserve what no file holds, so a long text comes in pieces.
    constexpr uint64_t kPiece = 1 << 20;
    uint64_t left = 0;
    if (!stream->Read(&left)) return false;
    text->clear();
    while (left > 0) {
      const size_t have = text->size(), piece = static_cast<size_t>(std::min(left, kPiece));
      text->resize(have + piece);
      if (stream->Read(static_cast<void*>(text->data() + have), piece) != piece) return false;
      left -= piece;
    }
    return true;
  }
};

template <>
struct Serializer<ffi::String> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::String& text) {
    Serializer<std::string>::Write(stream, std::string(text));
  }
  static bool Read(Stream* stream, ffi::String* text) {
    std::string plain;
    if (!Serializer<std::string>::Read(stream, &plain)) return false;
    *text = ffi::String(std::move(plain));
    return true;
  }
};

template <typename T>
struct Serializer<std::vector<T>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const std::vector<T>& values) {
    stream->Write(static_cast<uint64_t>(values.size()));
    stream->WriteArray(values.data(), values.size());
  }
  static bool Read(Stream* stream, std::vector<T>* values) {
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    values->clear();
    for (uint64_t i = 0; i < count; ++i) {
      values->emplace_back();
      if (!stream->Read(&values->back())) return false;
    }
    return true;
  }
};

template <typename T>
struct Serializer<ffi::Array<T>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::Array<T>& values) {
    stream->Write(static_cast<uint64_t>(values.size()));
    for (const T& value : values) stream->Write(value);
  }
  static bool Read(Stream* stream, ffi::Array<T>* values) {
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    values->clear();
    for (uint64_t i = 0; i < count; ++i) {
      T value;
      if (!stream->Read(&value)) return false;
      values->push_back(std::move(value));
    }
    return true;
  }
};

}  // namespace support
}  // namespace tvm
