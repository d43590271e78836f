#include "contract/text/text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace edgetlm {
namespace {

constexpr char kEllipsis[] = "...";
constexpr size_t kEllipsisCharacters = 3;
constexpr uint32_t kStrayByte = 0xdc00;
constexpr uint32_t kSurrogates = 0xd800, kAfterSurrogates = 0xe000, kLastCharacter = 0x10ffff;

template <size_t count>
bool is_in(const CharacterRange (&ranges)[count], uint32_t character) {
  const CharacterRange* after = std::upper_bound(
      std::begin(ranges), std::end(ranges), character,
      [](uint32_t wanted, const CharacterRange& range) { return wanted < range.first; });
  return after != std::begin(ranges) && character <= std::prev(after)->last;
}

// The character at a place and the bytes that it takes; none for what is not UTF-8.
struct Decoded {
  uint32_t character = 0;
  size_t bytes = 0;
};

Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t index) { return static_cast<uint32_t>(static_cast<unsigned char>(text[index])); };
  const uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 && lead < 0xf8 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || lead >= 0xf8 || text.size() - at < length) return {};
  uint32_t character = lead & (0x7fu >> length);
  for (size_t index = at + 1; index < at + length; ++index) {
    if ((byte(index) & 0xc0) != 0x80) return {};
    character = character << 6 | (byte(index) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = character >= kSurrogates && character < kAfterSurrogates;
  if (character < kLeast[length] || character > kLastCharacter || surrogate) return {};
  return {character, length};
}

// An escape such as \x1b.
std::string escaped(uint32_t character) {
  char escape[16];
  const char* form = character <= 0xff ? "\\x%02x" : character <= 0xffff ? "\\u%04x" : "\\U%08x";
  std::snprintf(escape, sizeof(escape), form, static_cast<unsigned>(character));
  return escape;
}

// A character, or an escape in its place where it would not be seen as itself.
std::string visible(uint32_t character) {
  if (is_in(kHiddenCharacters, character)) return escaped(character);
  std::string text;
  append_character(character, &text);
  return text;
}

}  // namespace

std::vector<uint32_t> characters_of(std::string_view text) {
  std::vector<uint32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    characters.push_back(next.bytes != 0 ? next.character : kStrayByte + static_cast<unsigned char>(text[at]));
    at += std::max<size_t>(next.bytes, 1);
  }
  return characters;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = decode(text, at).bytes;
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

void append_character(uint32_t character, std::string* text) {
  if (character < 0x80) {
    *text += static_cast<char>(character);
    return;
  }
  const int rest = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  *text += static_cast<char>(kLead[rest] | character >> (6 * rest));
  for (int index = rest - 1; index >= 0; --index) {
    *text += static_cast<char>(0x80 | (character >> (6 * index) & 0x3f));
  }
}

std::string printable(std::string_view text, size_t limit) {
  std::vector<uint32_t> characters = characters_of(text.substr(0, 4 * (4 * limit + kEllipsisCharacters)));
  characters.resize(std::min(characters.size(), 4 * limit + kEllipsisCharacters));
  std::vector<std::string> shown;
  bool space = false;
  size_t length = 0;
  const auto add = [&](std::string piece) {
    // An escape is ASCII, and anything else one character.
    length += piece[0] == '\\' ? piece.size() : 1;
    shown.push_back(std::move(piece));
  };
  for (const uint32_t character : characters) {
    const bool is_space = is_in(kSpaceCharacters, character);
    if (!is_space) {
      if (space && !shown.empty()) add(" ");
      add(visible(character));
    }
    space = is_space;
  }
  const bool fits = length <= limit;
  std::string line;
  size_t left = fits ? length : limit - std::min(limit, kEllipsisCharacters);
  for (const std::string& piece : shown) {
    const size_t size = piece[0] == '\\' ? piece.size() : 1;
    line += size <= left ? piece : piece.substr(0, left);
    if (size >= left) break;
    left -= size;
  }
  return fits ? line : line + kEllipsis;
}

std::string quoted(std::string_view text) {
  const bool inner = text.find('\'') != text.npos && text.find('"') == text.npos;
  const uint32_t quote = inner ? '"' : '\'';
  std::string result;
  append_character(quote, &result);
  for (const uint32_t character : characters_of(text)) {
    const size_t control = std::string_view("\n\r\t").find(static_cast<char>(character));
    if (character < 0x20 && control != std::string_view::npos) {
      result += std::string_view("\\n\\r\\t").substr(2 * control, 2);
    } else if (character == '\\' || character == quote) {
      result += '\\';
      append_character(character, &result);
    } else if (character != ' ' && is_in(kSpaceCharacters, character)) {
      result += escaped(character);
    } else {
      result += visible(character);
    }
  }
  append_character(quote, &result);
  return result;
}

bool is_printable(std::string_view text) {
  bool space = true;  // none at the beginning
  for (const uint32_t character : characters_of(text)) {
    const bool is_space = is_in(kSpaceCharacters, character);
    if (is_in(kHiddenCharacters, character) || (is_space && (space || character != ' '))) return false;
    space = is_space;
  }
  return !space || text.empty();
}

}  // namespace edgetlm
