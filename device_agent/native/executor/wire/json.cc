#include "executor/wire/json.h"

#include <cctype>
#include <cmath>
#include <stdexcept>

#include "contract/text/strict_json.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

Json converted(const JsonValue& value) {
  if (value.truth()) return *value.truth();
  if (value.integer()) return *value.integer();
  if (value.number()) return *value.number();
  if (value.text()) return tvm::ffi::String(*value.text());
  if (value.items()) {
    JsonArray array;
    for (const JsonValue& item : *value.items()) array.push_back(converted(item));
    return array;
  }
  if (value.fields()) {
    JsonObject object;
    for (const auto& [name, field] : value.fields()->entries) object.Set(tvm::ffi::String(name), converted(field));
    return object;
  }
  return nullptr;
}

// Length of the UTF-8 sequence at `at`, 0 where it is none.
size_t sequence(std::string_view text, size_t at) {
  const unsigned char lead = static_cast<unsigned char>(text[at]);
  const size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

[[noreturn]] void wrong_type(const Json& value, const char* wanted) {
  throw FieldError("TypeError('" + std::string(wanted) + " expected, got " + json_text(value) + "')");
}

}  // namespace

Json parse_json(const std::string& text) {
  return converted(parse_strict(text, static_cast<int64_t>(text.size())));
}

std::string json_text(const Json& value) { return std::string(tvm::ffi::json::Stringify(value)); }

Json find(const JsonObject& object, const char* name) {
  const auto entry = object.find(tvm::ffi::String(name));
  return entry == object.end() ? Json(nullptr) : Json((*entry).second);
}

Json at(const JsonObject& object, const char* name) {
  const auto entry = object.find(tvm::ffi::String(name));
  if (entry == object.end()) throw FieldError("KeyError('" + std::string(name) + "')");
  return (*entry).second;
}

std::string text_of(const Json& value) {
  if (const auto text = value.as<tvm::ffi::String>()) return std::string(*text);
  wrong_type(value, "text");
}

int64_t integer_of(const Json& value) {
  if (value.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt) return value.cast<int64_t>();
  if (value.type_index() == tvm::ffi::TypeIndex::kTVMFFIFloat) {
    const double number = value.cast<double>();
    if (std::isfinite(number) && std::fabs(number) < 9e18) return static_cast<int64_t>(number);
  }
  wrong_type(value, "a whole number");
}

double number_of(const Json& value) {
  if (value.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt) return static_cast<double>(value.cast<int64_t>());
  if (value.type_index() == tvm::ffi::TypeIndex::kTVMFFIFloat) return value.cast<double>();
  wrong_type(value, "a number");
}

bool truth_of(const Json& value) {
  if (value.type_index() == tvm::ffi::TypeIndex::kTVMFFIBool) return value.cast<bool>();
  return number_of(value) != 0.0;
}

JsonObject object_of(const Json& value) {
  if (const auto object = value.as<JsonObject>()) return *object;
  wrong_type(value, "an object");
}

JsonArray array_of(const Json& value) {
  if (const auto array = value.as<JsonArray>()) return *array;
  wrong_type(value, "an array");
}

std::vector<int64_t> integers_of(const Json& value) {
  std::vector<int64_t> values;
  for (const Json& entry : array_of(value)) values.push_back(integer_of(entry));
  return values;
}

JsonArray json_of(const std::vector<int64_t>& values) {
  JsonArray array;
  for (const int64_t value : values) array.push_back(value);
  return array;
}

std::string one_line(std::string_view text) {
  std::string line;
  bool space = false;
  for (size_t i = 0; i < text.size();) {
    if (std::isspace(static_cast<unsigned char>(text[i]))) {
      space = true;
      ++i;
      continue;
    }
    if (space && !line.empty()) line += ' ';
    space = false;
    const size_t length = sequence(text, i);
    line += length == 0 ? std::string_view("?") : text.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  return line;
}

}  // namespace edgetlm
