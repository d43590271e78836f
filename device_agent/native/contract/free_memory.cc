#include "contract/free_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "contract/protocol.h"

namespace edgetlm {
namespace {

constexpr double kMib = 1 << 20;

// A number alone in a file; below 0 where there is none, as where a control group has no limit.
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  long long number = -1;
  return std::getline(file, text) && std::sscanf(text.c_str(), "%18lld", &number) == 1 ? number : -1;
}

// The limit of a control group, what it uses, and the name in memory.stat of the pages that can be given back.
struct Names {
  const char* limit;
  const char* used;
  const char* idle;
};
constexpr Names kVersion2{"/memory.max", "/memory.current", "inactive_file"};
constexpr Names kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};

// What the limit of one group leaves, and at most `most`.
int64_t left(const std::string& folder, const Names& names, int64_t most) {
  const int64_t limit = number_in(folder + names.limit), used = number_in(folder + names.used);
  if (limit < 0 || used < 0) return most;
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  int64_t count = 0, idle = 0;
  while (file >> name >> count) {
    if (name == names.idle) idle = std::max<int64_t>(count, 0);
  }
  return std::min(most, std::max<int64_t>(limit - used + idle, 0));
}

// The same for the group of this process and those around it.
int64_t left_to_groups(const std::string& groups, const std::string& own, int64_t most) {
  std::ifstream file(own);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool newer = line.substr(0, first) == "0" && kinds == ",,";
    if (!newer && kinds.find(",memory,") == std::string::npos) continue;
    const std::string root = newer ? groups : groups + "/memory";
    std::string path = line.substr(second + 1);
    // In a container the group itself may be what is mounted: then only the outermost folder is there.
    if (path.find("..") != std::string::npos) path.clear();
    while (!path.empty()) {
      most = left(root + path, newer ? kVersion2 : kVersion1, most);
      const size_t end = path.rfind('/');
      path.resize(end == std::string::npos ? 0 : end);
    }
    most = left(root, newer ? kVersion2 : kVersion1, most);
  }
  return most;
}

}  // namespace

int64_t free_bytes(const std::string& meminfo, const std::string& groups, const std::string& own) {
  std::ifstream file(meminfo);
  std::string line;
  while (std::getline(file, line)) {
    long long kibibytes = 0;
    char unit = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %15lld k%c", &kibibytes, &unit) == 2 && unit == 'B') {
      return left_to_groups(groups, own, 1024 * static_cast<int64_t>(kibibytes));
    }
  }
  return -1;
}

void require_free(const CheckedManifest& manifest) {
  if (manifest.decoder.context == 0) return;
  const auto weights = manifest.files.find(protocol::bundle::parameters);
  const int64_t needed = manifest.state_bytes + (weights == manifest.files.end() ? 0 : weights->second.size);
  const int64_t free = free_bytes();
  if (free < 0 || needed <= free) return;
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "its weights and its state take %.1f MiB, this machine has %.1f MiB free",
                static_cast<double>(needed) / kMib, static_cast<double>(free) / kMib);
  throw ContractError(std::string(numbers) +
                      ": close other programs, or deploy it with --quantize int4, a smaller --context or fewer "
                      "--sequences");
}

}  // namespace edgetlm
