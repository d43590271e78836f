// Text from elsewhere, made fit to be shown; as device_agent/contract/text.py does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/limits.h"

namespace edgetlm {

// The characters of a text. A byte that is no part of UTF-8 becomes 0xdc00 and itself, which no text holds.
std::vector<uint32_t> characters_of(std::string_view text);
// Whether a text is UTF-8.
bool is_utf8(std::string_view text);
void append_character(uint32_t character, std::string* text);

// One line of visible characters, at most `limit` of them.
std::string printable(std::string_view text, size_t limit = limits::text::shown_characters);
// A text in quotes, as Python would show it.
std::string quoted(std::string_view text);
// Whether `printable` would leave the text as it is, whatever its length.
bool is_printable(std::string_view text);

}  // namespace edgetlm
