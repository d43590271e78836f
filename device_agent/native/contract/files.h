// Files of a bundle, opened so that nothing but a regular file is read.
#pragma once

#include <cstdint>
#include <string>

namespace edgetlm {

// The last part of a path.
std::string file_name(const std::string& path);

// A file descriptor that is closed with it.
class OpenFile {
 public:
  explicit OpenFile(int number) : number_(number) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();
  int number() const { return number_; }

 private:
  const int number_;
};

// What a system call says of a file; the number is errno.
struct FileFailure {
  int number;
};

// A descriptor of a regular file: no symbolic link, no pipe that never ends, no device. ContractError where it
// is something else, FileFailure where it cannot be opened.
int open_regular(const std::string& path);
// At most `size` bytes, 0 at the end; FileFailure where it cannot be read.
size_t read_some(int descriptor, char* data, size_t size);
// The rest of a file, but at most so many bytes; FileFailure where it cannot be read.
std::string read_to(int descriptor, int64_t most);
// The content of a regular file of at most so many bytes; whether there is one. ContractError where it is longer,
// no regular file, or cannot be read.
bool read_bounded(const std::string& path, int64_t most, std::string* content);

}  // namespace edgetlm
