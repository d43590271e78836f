#include "contract/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "contract/error.h"
#include "contract/text/text.h"

namespace edgetlm {
namespace {

constexpr size_t kPieceBytes = 1 << 16;

}  // namespace

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

OpenFile::~OpenFile() { close(number_); }

int open_regular(const std::string& path) {
  int descriptor = -1;
  do {
    descriptor = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  struct stat status {};
  if (descriptor < 0) throw FileFailure{errno};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    throw ContractError(printable(file_name(path)) + " is not a regular file");
  }
  return descriptor;
}

size_t read_some(int descriptor, char* data, size_t size) {
  while (true) {
    const ssize_t got = read(descriptor, data, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) throw FileFailure{errno};
  }
}

std::string read_to(int descriptor, int64_t most) {
  std::string content;
  const size_t limit = static_cast<size_t>(most);
  while (content.size() < limit) {
    const size_t before = content.size(), wanted = std::min(kPieceBytes, limit - before);
    content.resize(before + wanted);
    const size_t got = read_some(descriptor, &content[before], wanted);
    content.resize(before + got);
    if (got == 0) break;
  }
  return content;
}

bool read_bounded(const std::string& path, int64_t most, std::string* content) {
  const std::string name = file_name(path);
  try {
    const OpenFile file(open_regular(path));
    *content = read_to(file.number(), most + 1);
  } catch (const FileFailure& failure) {
    if (failure.number == ENOENT) return false;
    throw ContractError(name + " cannot be read: " + strerror(failure.number));
  }
  if (content->size() <= static_cast<size_t>(most)) return true;
  throw ContractError(name + " has more than " + std::to_string(most) + " bytes");
}

}  // namespace edgetlm
