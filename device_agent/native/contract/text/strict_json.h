// JSON from elsewhere: strict and bounded, and read as device_agent/contract/strict_json.py reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace edgetlm {

class JsonValue;
using JsonList = std::vector<JsonValue>;
struct JsonFields;

// A value of JSON. What it holds is asked for by a pointer, which is null where it holds something else.
class JsonValue {
 public:
  JsonValue();
  explicit JsonValue(bool truth);
  explicit JsonValue(int64_t number);
  explicit JsonValue(double number);
  explicit JsonValue(std::string text);
  explicit JsonValue(JsonList items);
  explicit JsonValue(JsonFields fields);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(JsonValue&& other) noexcept;
  ~JsonValue();

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  const bool* truth() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const JsonList* items() const;
  const JsonFields* fields() const;
  // The field of an object; null where this is none, or has no such field.
  const JsonValue* find(std::string_view name) const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::unique_ptr<JsonList>,
               std::unique_ptr<JsonFields>>
      value_;
};

// In the order of the text; no name is there twice.
struct JsonFields {
  std::vector<std::pair<std::string, JsonValue>> entries;
};

// The value of a text; std::invalid_argument with a line that names the text where it is not JSON as above.
JsonValue parse_strict(std::string_view text, int64_t max_bytes, const std::string& what = "the text");

// A value as Python would show it, cut after so many characters.
std::string shown(const JsonValue* value, size_t limit = 60);

}  // namespace edgetlm
