#include "contract/free_memory.h"

#include <cstdio>
#include <fstream>

#include "contract/protocol.h"

namespace edgetlm {
namespace {

constexpr double kMib = 1 << 20;

// Bytes that programs can get without swapping, see proc(5); below 0 where the system does not say.
int64_t free_bytes(const std::string& meminfo) {
  std::ifstream file(meminfo);
  std::string line;
  while (std::getline(file, line)) {
    long long kibibytes = 0;
    char unit = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %15lld k%c", &kibibytes, &unit) == 2 && unit == 'B') {
      return 1024 * static_cast<int64_t>(kibibytes);
    }
  }
  return -1;
}

}  // namespace

void require_free(const CheckedManifest& manifest, const std::string& meminfo) {
  if (manifest.decoder.context == 0) return;
  const auto weights = manifest.files.find(protocol::bundle::parameters);
  const int64_t needed = manifest.state_bytes + (weights == manifest.files.end() ? 0 : weights->second.size);
  const int64_t free = free_bytes(meminfo);
  if (free < 0 || needed <= free) return;
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "its weights and its state take %.1f MiB, this machine has %.1f MiB free",
                static_cast<double>(needed) / kMib, static_cast<double>(free) / kMib);
  throw ContractError(std::string(numbers) +
                      ": close other programs, or deploy it with --quantize int4, a smaller --context or fewer "
                      "--sequences");
}

}  // namespace edgetlm
