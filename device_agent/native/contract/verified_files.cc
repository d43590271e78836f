#include "contract/verified_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "contract/error.h"
#include "contract/files.h"
#include "contract/hash.h"
#include "contract/limits.h"
#include "contract/protocol.h"
#include "contract/text/strict_json.h"

namespace edgetlm {
namespace {

namespace fs = std::filesystem;

constexpr char kBoot[] = "/proc/sys/kernel/random/boot_id";
constexpr size_t kMemoryBytes = limits::bundle::verified_bytes;
constexpr size_t kRemembered = limits::bundle::verified_files;
constexpr size_t kFields = 3;

// Names the boot; nothing is remembered where it has no name.
std::string boot_id() {
  const int descriptor = open(kBoot, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  const OpenFile file(descriptor);
  char text[64];
  const ssize_t got = read(descriptor, text, sizeof(text));
  const std::string name(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return name.substr(0, name.find_first_of(" \n"));
}

bool holds(const JsonValue* value, const std::string& text) {
  return value != nullptr && value->text() != nullptr && *value->text() == text;
}

bool same(const JsonValue* value, const Stamps& stamps) {
  const JsonFields* files = value == nullptr ? nullptr : value->fields();
  if (files == nullptr || files->entries.size() != stamps.size()) return false;
  for (const auto& [name, stamp] : stamps) {
    const JsonValue* known = value->find(name);
    const JsonList* numbers = known == nullptr ? nullptr : known->items();
    const auto equal = [](const JsonValue& number, int64_t part) {
      return number.integer() != nullptr && *number.integer() == part;
    };
    if (numbers == nullptr ||
        !std::equal(numbers->begin(), numbers->end(), stamp.begin(), stamp.end(), equal)) {
      return false;
    }
  }
  return true;
}

std::string json_of(const std::string& boot, const Stamps& stamps) {
  std::string files;
  for (const auto& [name, stamp] : stamps) {
    std::string numbers;
    for (const int64_t part : stamp) numbers += (numbers.empty() ? "" : ", ") + std::to_string(part);
    files += (files.empty() ? "\"" : ", \"") + name + "\": [" + numbers + "]";
  }
  return std::string("{\"schema\": \"") + protocol::bundle::verified_schema + "\", \"boot\": \"" + boot + "\", \"files\": {" + files +
         "}}";
}

bool write_new(const std::string& path, const std::string& text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return false;
  const OpenFile file(descriptor);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(descriptor, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

// Makes a folder for this user alone, and those above it.
void make_private(const std::string& folder) {
  std::error_code ignored;
  fs::create_directories(fs::path(folder).parent_path(), ignored);
  mkdir(folder.c_str(), 0700);
}

}  // namespace

bool VerifiedFiles::knows(const std::string& version, const Stamps& stamps) const {
  try {
    const OpenFile file(open_regular(folder_ + "/" + version));
    struct stat status {};
    if (fstat(file.number(), &status) != 0 || status.st_uid != geteuid()) return false;
    std::string data(kMemoryBytes, '\0');
    data.resize(read_some(file.number(), &data[0], data.size()));
    const JsonValue known = parse_strict(data, kMemoryBytes);
    const std::string boot = boot_id();
    return !boot.empty() && known.fields() != nullptr && known.fields()->entries.size() == kFields &&
           holds(known.find("schema"), protocol::bundle::verified_schema) && holds(known.find("boot"), boot) &&
           same(known.find("files"), stamps);
  } catch (const FileFailure&) {
    return false;
  } catch (const ContractError&) {
    return false;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void VerifiedFiles::remember(const std::string& version, const Stamps& stamps) const {
  unsigned char noise[4];
  if (getrandom(noise, sizeof(noise), 0) != sizeof(noise)) return;
  const std::string suffix = to_hexadecimal({reinterpret_cast<const char*>(noise), sizeof(noise)});
  const std::string temporary = folder_ + "/." + version + "." + suffix;
  make_private(folder_);
  struct stat status {};
  if (stat(folder_.c_str(), &status) != 0 || status.st_uid != geteuid()) return;
  if (write_new(temporary, json_of(boot_id(), stamps))) {
    rename(temporary.c_str(), (folder_ + "/" + version).c_str());
    forget_old();
  }
}

void VerifiedFiles::forget_old() const {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    found.emplace_back(entry->last_write_time(gone), entry->path());
  }
  std::sort(found.begin(), found.end());
  for (size_t index = 0; index + kRemembered < found.size(); ++index) fs::remove(found[index].second, error);
}

}  // namespace edgetlm
