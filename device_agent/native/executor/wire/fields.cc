#include "executor/wire/fields.h"

#include <cmath>
#include <utility>

#include "contract/text/text.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

constexpr size_t kShownCharacters = 60;

std::string shown(const Json& value) {
  // What is large is not written out: it may have been sent for that.
  if (const auto array = value.as<JsonArray>()) return "a list of " + std::to_string(array->size());
  if (const auto object = value.as<JsonObject>()) return "an object of " + std::to_string(object->size());
  if (const auto text = value.as<tvm::ffi::String>()) return "'" + printable(std::string(*text), kShownCharacters) + "'";
  return json_text(value);
}

int64_t characters(const std::string& text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  return count;
}

}  // namespace

Fields::Fields(JsonObject values, std::string what) : values_(std::move(values)), what_(std::move(what)) {}

bool Fields::has(const char* name) const { return find(values_, name) != nullptr; }

std::string Fields::text(const char* name, int64_t limit) const {
  const auto found = find(values_, name).as<tvm::ffi::String>();
  if (found) {
    const std::string text(*found);
    if (characters(text) <= limit && text.find('\0') == std::string::npos) return text;
  }
  wrong(name, "text of at most " + std::to_string(limit) + " characters");
}

std::string Fields::text_or(const char* name, const std::string& standard, int64_t limit) const {
  return has(name) ? text(name, limit) : standard;
}

std::string Fields::name(const char* name) const {
  const std::string found = text(name, limits::wire::name_characters);
  if (found.empty()) wrong(name, "a name");
  return found;
}

int64_t Fields::whole(const char* name, int64_t least, int64_t most) const {
  const Json value = find(values_, name);
  if (value.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt) {
    const int64_t number = value.cast<int64_t>();
    if (number >= least && number <= most) return number;
  }
  wrong(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

int64_t Fields::whole_or(const char* name, int64_t least, int64_t most, int64_t standard) const {
  return has(name) ? whole(name, least, most) : standard;
}

double Fields::seconds(const char* name) const {
  const Json value = find(values_, name);
  const int32_t type = value.type_index();
  if (type == tvm::ffi::TypeIndex::kTVMFFIInt || type == tvm::ffi::TypeIndex::kTVMFFIFloat) {
    const double number = number_of(value);
    if (std::isfinite(number) && number >= 0.0 && number <= static_cast<double>(limits::wire::seconds)) return number;
  }
  wrong(name, "a number from 0 to " + std::to_string(limits::wire::seconds));
}

double Fields::seconds_or(const char* name, double standard) const { return has(name) ? seconds(name) : standard; }

bool Fields::truth(const char* name) const {
  const Json value = find(values_, name);
  if (value.type_index() != tvm::ffi::TypeIndex::kTVMFFIBool) wrong(name, "true or false");
  return value.cast<bool>();
}

JsonArray Fields::items(const char* name, int64_t limit) const {
  const auto found = find(values_, name).as<JsonArray>();
  if (found && static_cast<int64_t>(found->size()) <= limit) return *found;
  wrong(name, "a list of at most " + std::to_string(limit) + " entries");
}

JsonObject Fields::object(const char* name) const {
  const auto found = find(values_, name).as<JsonObject>();
  if (!found) wrong(name, "an object");
  return *found;
}

void Fields::wrong(const char* name, const std::string& wanted) const {
  const bool there = values_.find(tvm::ffi::String(name)) != values_.end();
  const std::string found = there ? "is " + shown(find(values_, name)) : "is missing";
  fail(std::string(name) + " " + found + "; " + wanted + " is expected");
}

void Fields::fail(const std::string& text) const {
  throw AgentError("bad_request", what_.empty() ? text : what_ + ": " + text);
}

}  // namespace edgetlm
