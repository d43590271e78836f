// The state of a prompt in a file, so that another process need not compute it again: the files that
// device_agent/execute/kept_prompt.py describes, writes and reads.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/files.h"
#include "contract/hash.h"
#include "contract/text/strict_json.h"
#include "contract/text/text.h"
#include "value.h"

namespace edgetlm {

inline constexpr std::string_view kPromptMagic = "EDGETLM-PROMPT1\n";
// Of the header: what one token takes, and the rest.
inline constexpr int64_t kPromptTokenBytes = 16, kPromptOtherBytes = 256;

// Writes a file, whole or not at all; std::runtime_error where it cannot be written.
//
// path: of the file; one that is there is replaced.
// content: digest of what the bundle computes.
// tokens: that the state is of.
// state: its tensors.
inline void write_prompt(const std::string& path, const std::string& content, const std::vector<int32_t>& tokens,
                         const std::vector<Value>& state) {
  std::string header = "{\"content\": \"" + content + "\", \"tokens\": [";
  for (size_t index = 0; index < tokens.size(); ++index) {
    header += (index == 0 ? "" : ", ") + std::to_string(tokens[index]);
  }
  header += "]}";
  std::string length;
  for (int byte = 0; byte < 4; ++byte) length += static_cast<char>(header.size() >> 8 * byte & 255);
  const std::string partial = path + "." + std::to_string(getpid()) + ".part";
  Sha256 digest;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  const auto write = [&](const char* data, size_t size) {
    digest.update(data, size);
    file.write(data, static_cast<std::streamsize>(size));
  };
  write(kPromptMagic.data(), kPromptMagic.size());
  write(length.data(), length.size());
  write(header.data(), header.size());
  for (const Value& one : state) write(static_cast<const char*>(one.tensor().data), bytes_of(one.tensor()));
  const std::string end = digest.digest();
  file.write(end.data(), static_cast<std::streamsize>(end.size()));
  file.close();
  if (file.good() && std::rename(partial.c_str(), path.c_str()) == 0) return;
  const std::string reason = std::strerror(errno);
  std::remove(partial.c_str());
  throw std::runtime_error(printable(path) + " cannot be written: " + reason);
}

// Reads files of one bundle.
class PromptReader {
 public:
  // context: most tokens; content: digest of what the bundle computes.
  PromptReader(std::string path, std::string content, int64_t context)
      : path_(std::move(path)), content_(std::move(content)), most_(context * kPromptTokenBytes + kPromptOtherBytes) {}

  // Fills the state out of the file, and gives the tokens that it is of now; std::runtime_error with one line where
  // there is no such file, or it is damaged or of another bundle. `begin` is called before the state changes: what it
  // holds is of no use if this fails then.
  std::vector<int64_t> read(const std::vector<Value>& state, const std::function<void()>& begin) const {
    const OpenFile file(opened());
    struct stat status {};
    if (fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) fail("there is no such file");
    Sha256 digest;
    const std::string start = taken(file, kPromptMagic.size() + 4);
    if (start.size() != kPromptMagic.size() + 4 || start.compare(0, kPromptMagic.size(), kPromptMagic) != 0) {
      fail("it is no file of a prompt");
    }
    int64_t length = 0;
    for (size_t byte = 0; byte < 4; ++byte) {
      length |= static_cast<int64_t>(static_cast<unsigned char>(start[kPromptMagic.size() + byte])) << 8 * byte;
    }
    if (length > most_) fail("its header is longer than any");
    const std::string header = taken(file, static_cast<size_t>(length));
    digest.update(start.data(), start.size());
    digest.update(header.data(), header.size());
    std::vector<int64_t> tokens = tokens_of(header);
    size_t size = start.size() + header.size() + kDigestBytes;
    for (const Value& one : state) size += bytes_of(one.tensor());
    if (status.st_size != static_cast<off_t>(size)) fail("it is no whole file of a prompt");
    begin();
    for (const Value& one : state) {
      char* data = static_cast<char*>(one.tensor().data);
      fill(file, data, bytes_of(one.tensor()));
      digest.update(data, bytes_of(one.tensor()));
    }
    if (taken(file, kDigestBytes) != digest.digest()) fail("it is damaged");
    return tokens;
  }

  [[noreturn]] void fail(const std::string& text) const {
    throw std::runtime_error(printable(path_) + ": " + text + ": save the prompt again");
  }

 private:
  int opened() const {
    // A pipe without a writer is not waited for.
    const int number = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (number < 0) fail(errno == ENOENT ? "there is no such file" : std::strerror(errno));
    return number;
  }

  std::string taken(const OpenFile& file, size_t most) const {
    try {
      return read_to(file.number(), static_cast<int64_t>(most));
    } catch (const FileFailure& failure) {
      fail(std::strerror(failure.number));
    }
  }

  void fill(const OpenFile& file, char* data, size_t size) const {
    try {
      while (size > 0) {
        const size_t got = read_some(file.number(), data, size);
        if (got == 0) fail("it became shorter");
        data += got;
        size -= got;
      }
    } catch (const FileFailure& failure) {
      fail(std::strerror(failure.number));
    }
  }

  std::vector<int64_t> tokens_of(const std::string& header) const {
    JsonValue parsed;
    try {
      parsed = parse_strict(header, most_, "its header");
    } catch (const std::invalid_argument& error) {
      fail(printable(error.what()));
    }
    const JsonValue* content = parsed.find("content");
    const JsonValue* listed = parsed.find("tokens");
    if (parsed.fields() == nullptr || parsed.fields()->entries.size() != 2 || content == nullptr || listed == nullptr) {
      fail("its header is not that of a prompt");
    }
    if (content->text() == nullptr || *content->text() != content_) fail("it is of another bundle");
    if (listed->items() == nullptr) fail("its tokens are no numbers");
    std::vector<int64_t> tokens;
    for (const JsonValue& one : *listed->items()) {
      if (one.integer() == nullptr) fail("its tokens are no numbers");
      tokens.push_back(*one.integer());
    }
    return tokens;
  }

  const std::string path_, content_;
  const int64_t most_;
};

}  // namespace edgetlm
