// The words of a command line, and how a program ends: what the examples share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

namespace edgetlm {

// A number that is the whole word.
inline double number_of(const std::string& word) {
  size_t used = 0;
  double value = 0.0;
  try {
    value = std::stod(word, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != word.size()) throw std::invalid_argument("'" + word + "' is not a number");
  return value;
}

inline int64_t whole_of(const std::string& word) {
  const double value = number_of(word);
  if (!(value >= -2147483648.0 && value <= 2147483647.0) || value != static_cast<double>(static_cast<int64_t>(value))) {
    throw std::invalid_argument("'" + word + "' is not a whole number");
  }
  return static_cast<int64_t>(value);
}

// Reads a command line. A word that begins with "--" is an option and takes the word after it.
//
// flag: whether an option takes no value; it is set then.
// option: sets an option; false where there is none of that name.
// word: takes a word that is no option.
// usage: what an error shows where an option is unknown or lacks its value.
inline void read_words(int count, char** words, const std::string& usage,
                       const std::function<bool(const std::string&)>& flag,
                       const std::function<bool(const std::string&, const std::string&)>& option,
                       const std::function<void(const std::string&)>& word) {
  for (int index = 1; index < count; ++index) {
    const std::string name = words[index];
    if (name.rfind("--", 0) != 0) {
      word(name);
    } else if (!flag(name)) {
      if (index + 1 == count || !option(name, words[++index])) throw std::invalid_argument(usage);
    }
  }
}

// The exit code of a program: 1 with one line where it throws.
inline int exit_code(const std::function<int()>& program) {
  try {
    return program();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace edgetlm
