// Small functions on text.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace tvm {
namespace support {

inline bool StartsWith(const std::string& text, std::string_view prefix) { return text.starts_with(prefix); }

inline bool IsNumber(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char letter) { return std::isdigit(letter); });
}

}  // namespace support
}  // namespace tvm
