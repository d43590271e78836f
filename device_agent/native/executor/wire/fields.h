// Fields of a request: every value is looked at before it is used, as device_agent/contract/fields.py does.
#pragma once

#include <cstdint>
#include <string>

#include "contract/limits.h"
#include "executor/wire/json.h"

namespace edgetlm {

// Typed and bounded access. Whatever is wrong is an AgentError of the kind "bad_request" that names the field.
class Fields {
 public:
  // `what` begins the messages; it may be empty.
  explicit Fields(JsonObject values, std::string what = "");

  // Whether the field is there and not null.
  bool has(const char* name) const;

  // Text of at most so many characters, without a NUL.
  std::string text(const char* name, int64_t limit = limits::wire::text_characters) const;
  // The same, or the standard where the field is absent or null.
  std::string text_or(const char* name, const std::string& standard,
                      int64_t limit = limits::wire::text_characters) const;
  // Text that is not empty, and short.
  std::string name(const char* name) const;
  int64_t whole(const char* name, int64_t least, int64_t most) const;
  int64_t whole_or(const char* name, int64_t least, int64_t most, int64_t standard) const;
  // A length of time, zero included.
  double seconds(const char* name) const;
  double seconds_or(const char* name, double standard) const;
  bool truth(const char* name) const;
  JsonArray items(const char* name, int64_t limit) const;
  JsonObject object(const char* name) const;

  // The error for a field that is not what it has to be.
  [[noreturn]] void wrong(const char* name, const std::string& wanted) const;
  [[noreturn]] void fail(const std::string& text) const;

 private:
  const JsonObject values_;
  const std::string what_;
};

}  // namespace edgetlm
