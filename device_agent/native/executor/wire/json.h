// JSON in the runtime's values, read as contract/text/strict_json.h does, and typed access to its objects.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace edgetlm {

using Json = tvm::ffi::json::Value;
using JsonObject = tvm::ffi::json::Object;
using JsonArray = tvm::ffi::json::Array;

// Parses text, whose length the caller bounds; std::invalid_argument where it is not strict JSON.
Json parse_json(const std::string& text);
// One line.
std::string json_text(const Json& value);

// The field, or null where there is none.
Json find(const JsonObject& object, const char* name);
// The field; FieldError where there is none.
Json at(const JsonObject& object, const char* name);

// What a value holds; FieldError where it is of another type. Whole numbers are taken for numbers.
std::string text_of(const Json& value);
int64_t integer_of(const Json& value);
double number_of(const Json& value);
bool truth_of(const Json& value);
JsonObject object_of(const Json& value);
JsonArray array_of(const Json& value);
std::vector<int64_t> integers_of(const Json& value);

JsonArray json_of(const std::vector<int64_t>& values);

// Words separated by single spaces, in valid UTF-8: a message as it travels.
std::string one_line(std::string_view text);

}  // namespace edgetlm
