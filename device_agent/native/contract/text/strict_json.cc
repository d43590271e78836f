#include "contract/text/strict_json.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "contract/limits.h"
#include "contract/text/text.h"

namespace edgetlm {
namespace {

// More than is ever shown of a value.
constexpr size_t kShownBytes = 1 << 11;

// Reads one text; the depth is bounded, so that it may recurse.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  JsonValue whole() {
    if (!is_utf8(text_)) fail("it is not UTF-8");
    JsonValue result = value(1);
    skip_space();
    if (at_ != text_.size()) fail("Extra data");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw std::invalid_argument(reason + " (byte " + std::to_string(at_) + ")");
  }

  int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }

  JsonValue value(int depth) {
    skip_space();
    const int next = peek();
    if (next == '{' || next == '[') {
      if (depth > limits::json::depth) fail("nested deeper than " + std::to_string(limits::json::depth));
      return next == '{' ? object(depth) : array(depth);
    }
    if (next == '"') return JsonValue(string());
    if (next == '-' || (next >= '0' && next <= '9')) return number();
    if (take("true")) return JsonValue(true);
    if (take("false")) return JsonValue(false);
    if (take("null")) return JsonValue();
    fail("Expecting value");
  }

  JsonValue array(int depth) {
    ++at_;
    JsonList items;
    skip_space();
    if (take("]")) return JsonValue(std::move(items));
    while (true) {
      items.push_back(value(depth + 1));
      skip_space();
      if (take("]")) return JsonValue(std::move(items));
      if (!take(",")) fail("Expecting ',' delimiter");
    }
  }

  JsonValue object(int depth) {
    ++at_;
    JsonFields fields;
    skip_space();
    if (take("}")) return JsonValue(std::move(fields));
    while (true) {
      skip_space();
      if (peek() != '"') fail("Expecting property name enclosed in double quotes");
      std::string name = string();
      skip_space();
      if (!take(":")) fail("Expecting ':' delimiter");
      fields.entries.emplace_back(std::move(name), value(depth + 1));
      skip_space();
      if (take("}")) break;
      if (!take(",")) fail("Expecting ',' delimiter");
    }
    check_names(fields);
    return JsonValue(std::move(fields));
  }

  void check_names(const JsonFields& fields) const {
    std::vector<std::string_view> names;
    for (const auto& entry : fields.entries) names.push_back(entry.first);
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) fail("an object has a key twice");
  }

  std::string string() {
    ++at_;
    std::string result;
    while (true) {
      const int next = peek();
      if (next < 0) fail("Unterminated string");
      if (next < 0x20) fail("Invalid control character");
      ++at_;
      if (next == '"') return result;
      if (next == '\\') {
        escape(&result);
      } else {
        result += static_cast<char>(next);
      }
    }
  }

  void escape(std::string* result) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const int letter = peek();
    if (letter == 'u') {
      ++at_;
      append_character(escaped_character(), result);
      return;
    }
    const size_t index = letter < 0 ? std::string_view::npos : kLetters.find(static_cast<char>(letter));
    if (index == std::string_view::npos) fail("Invalid \\escape");
    ++at_;
    *result += kMeant[index];
  }

  uint32_t escaped_character() {
    const uint32_t first = four_digits();
    if (first < 0xd800 || first > 0xdfff) return first;
    // Half of a character: the other half has to follow.
    if (first > 0xdbff || !take("\\u")) fail("a lone surrogate");
    const uint32_t second = four_digits();
    if (second < 0xdc00 || second > 0xdfff) fail("a lone surrogate");
    return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  }

  uint32_t four_digits() {
    uint32_t value = 0;
    for (int index = 0; index < 4; ++index, ++at_) {
      const int digit = peek(), lower = digit | 0x20;
      const bool decimal = digit >= '0' && digit <= '9';
      if (!decimal && (lower < 'a' || lower > 'f')) fail("Invalid \\uXXXX escape");
      value = value << 4 | static_cast<uint32_t>(decimal ? digit - '0' : lower - 'a' + 10);
    }
    return value;
  }

  bool digits() {
    const size_t before = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ != before;
  }

  JsonValue number() {
    const size_t begin = at_;
    take("-");
    if (!take("0") && !digits()) fail("Expecting value");
    const bool fraction = peek() == '.';
    if (fraction && (++at_, !digits())) fail("Extra data");
    const bool exponent = peek() == 'e' || peek() == 'E';
    if (exponent) {
      ++at_;
      if (!take("+")) take("-");
      if (!digits()) fail("Extra data");
    }
    const std::string text(text_.substr(begin, at_ - begin));
    return fraction || exponent ? floating(text) : integer(text);
  }

  JsonValue integer(const std::string& text) const {
    const bool negative = text[0] == '-';
    int64_t value = 0;
    for (size_t index = negative ? 1 : 0; index < text.size(); ++index) {
      const int64_t digit = text[index] - '0';
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, negative ? -digit : digit, &value)) {
        fail("a whole number of more than 64 bits");
      }
    }
    return JsonValue(value);
  }

  JsonValue floating(const std::string& text) const {
    // Whatever language the process speaks, a point is a point.
    static const locale_t neutral = newlocale(LC_ALL_MASK, "C", nullptr);
    const double value = strtod_l(text.c_str(), nullptr, neutral);
    if (!std::isfinite(value)) fail("a number that is not finite");
    return JsonValue(value);
  }

  std::string_view text_;
  size_t at_ = 0;
};

// The fewest digits that mean a number, with an exponent where Python writes one.
std::string number_text(double value) {
  constexpr int kMostDigits = 17, kLeastExponent = -4, kExponents = 16;
  char text[40];
  int digits = 0;
  do {
    std::snprintf(text, sizeof(text), "%.*e", digits, value);
  } while (strtod(text, nullptr) != value && ++digits < kMostDigits);
  const int exponent = atoi(std::strchr(text, 'e') + 1);
  if (exponent < kLeastExponent || exponent >= kExponents) return text;
  std::snprintf(text, sizeof(text), "%.*f", std::max(digits - exponent, 1), value);
  return text;
}

void represent(const JsonValue& value, std::string* text) {
  if (value.is_null()) *text += "None";
  if (value.truth()) *text += *value.truth() ? "True" : "False";
  if (value.integer()) *text += std::to_string(*value.integer());
  if (value.number()) *text += number_text(*value.number());
  if (value.text()) *text += quoted(std::string_view(*value.text()).substr(0, kShownBytes));
  const char* separator = "";
  if (value.items()) {
    *text += '[';
    for (const JsonValue& item : *value.items()) {
      if (text->size() > kShownBytes) return;
      *text += separator;
      represent(item, text);
      separator = ", ";
    }
    *text += ']';
  }
  if (value.fields()) {
    *text += '{';
    for (const auto& entry : value.fields()->entries) {
      if (text->size() > kShownBytes) return;
      *text += separator + quoted(std::string_view(entry.first).substr(0, kShownBytes)) + ": ";
      represent(entry.second, text);
      separator = ", ";
    }
    *text += '}';
  }
}

}  // namespace

JsonValue::JsonValue() : value_(nullptr) {}
JsonValue::JsonValue(bool truth) : value_(truth) {}
JsonValue::JsonValue(int64_t number) : value_(number) {}
JsonValue::JsonValue(double number) : value_(number) {}
JsonValue::JsonValue(std::string text) : value_(std::move(text)) {}
JsonValue::JsonValue(JsonList items) : value_(std::make_unique<JsonList>(std::move(items))) {}
JsonValue::JsonValue(JsonFields fields) : value_(std::make_unique<JsonFields>(std::move(fields))) {}
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue&& other) noexcept = default;
JsonValue::~JsonValue() = default;

const JsonList* JsonValue::items() const {
  const auto* held = std::get_if<std::unique_ptr<JsonList>>(&value_);
  return held == nullptr ? nullptr : held->get();
}

const JsonFields* JsonValue::fields() const {
  const auto* held = std::get_if<std::unique_ptr<JsonFields>>(&value_);
  return held == nullptr ? nullptr : held->get();
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const JsonFields* object = fields();
  if (object == nullptr) return nullptr;
  for (const auto& entry : object->entries) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

JsonValue parse_strict(std::string_view text, int64_t max_bytes, const std::string& what) {
  if (text.size() > static_cast<size_t>(max_bytes)) {
    throw std::invalid_argument(what + " has " + std::to_string(text.size()) + " bytes, at most " +
                                std::to_string(max_bytes) + " are read");
  }
  try {
    return Parser(text).whole();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(what + " is not valid JSON: " + error.what());
  }
}

std::string shown(const JsonValue* value, size_t limit) {
  std::string text;
  if (value == nullptr) {
    text = "None";
  } else {
    represent(*value, &text);
  }
  return printable(text, limit);
}

}  // namespace edgetlm
