#include "contract/verify.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "contract/error.h"
#include "contract/files.h"
#include "contract/hash.h"
#include "contract/limits.h"
#include "contract/protocol.h"
#include "contract/text/text.h"

namespace edgetlm {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kNanoseconds = 1000000000;
constexpr int64_t kSettledNanoseconds = static_cast<int64_t>(protocol::bundle::settled_s * kNanoseconds);
constexpr char kAgain[] = ": copy or make the bundle again";
constexpr char kMismatch[] = " does not match the hash in the manifest";

// A folder without a manifest, which is named by itself.
class NoManifest : public ContractError {
 public:
  using ContractError::ContractError;
};

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * kNanoseconds + time.tv_nsec; }

std::set<std::string> names_in(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory.c_str()), closedir);
  if (folder == nullptr) throw ContractError(std::string("it cannot be listed: ") + strerror(errno));
  std::set<std::string> names;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.insert(name);
  }
  return names;
}

void check_names(const std::string& directory, const CheckedManifest& manifest, bool is_signed) {
  std::set<std::string> expected{protocol::bundle::manifest};
  for (const auto& [name, entry] : manifest.files) expected.insert(name);
  if (is_signed) expected.insert(protocol::bundle::signature);
  const std::set<std::string> found = names_in(directory);
  for (const std::string& name : expected) {
    if (found.count(name) == 0) throw ContractError("it lacks " + name + kAgain);
  }
  for (const std::string& name : found) {
    if (expected.count(name) == 0) {
      throw ContractError("it holds " + printable(name) + ", which its manifest does not name: remove it");
    }
  }
}

std::vector<int64_t> check_size(const std::string& path, const std::string& name, const FileEntry& entry) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    throw ContractError(name + " cannot be read: " + strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw ContractError(name + " is not a regular file" + kAgain);
  if (status.st_size != entry.size) {
    throw ContractError(name + kMismatch + " (" + std::to_string(status.st_size) + " bytes, not " +
                        std::to_string(entry.size) + ")" + kAgain);
  }
  return {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino), status.st_size,
          nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

void check_content(const std::string& path, const std::string& name, const FileEntry& entry) {
  Sha256 hasher;
  int64_t size = 0;
  try {
    const OpenFile file(open_regular(path));
    std::string chunk(static_cast<size_t>(std::clamp<int64_t>(entry.size + 1, 1, kChunkBytes)), '\0');
    while (size <= entry.size) {
      const size_t got = read_some(file.number(), &chunk[0], chunk.size());
      if (got == 0) break;
      size += static_cast<int64_t>(got);
      hasher.update(chunk.data(), got);
    }
  } catch (const FileFailure& failure) {
    throw ContractError(name + " cannot be read: " + strerror(failure.number));
  }
  if (size != entry.size || to_hexadecimal(hasher.digest()) != entry.sha256) {
    throw ContractError(name + kMismatch + kAgain);
  }
}

void check_files(const std::string& directory, const VerifiedBundle& bundle, const VerifiedFiles& memory) {
  timespec began{};
  clock_gettime(CLOCK_REALTIME, &began);
  Stamps stamps;
  for (const auto& [name, entry] : bundle.manifest.files) {
    stamps[name] = check_size(directory + "/" + name, name, entry);
  }
  if (memory.knows(bundle.version, stamps)) return;
  for (const auto& [name, entry] : bundle.manifest.files) check_content(directory + "/" + name, name, entry);
  // Of the files as they were before they were read: a change meanwhile is noticed next time. One that follows
  // another within the resolution of the file system's times is not, so young files are not remembered.
  const auto settled = [&](const auto& one) { return one.second.back() + kSettledNanoseconds < nanoseconds(began); };
  if (std::all_of(stamps.begin(), stamps.end(), settled)) memory.remember(bundle.version, stamps);
}

// Whether a verified bundle may be used; the warning where it is used without trust in its signer.
std::string check_trust(const VerifiedBundle& bundle, const TrustedKeys& trusted, const std::string& level) {
  if (level != "signed" && level != "unsigned") {
    throw ContractError("trust is one of signed, unsigned, not " + printable(level));
  }
  trusted.check_not_revoked(bundle.version, bundle.signature);
  try {
    trusted.check(bundle.version, bundle.signature);
  } catch (const ContractError&) {
    if (level == "signed") throw;
    const std::string who = bundle.signature ? printable(bundle.signature->signer) : "nobody";
    return "the bundle " + bundle.directory + ", signed by " + who + ", is loaded without trust in its signer";
  }
  return {};
}

std::string verified_folder(const std::string& trust_file) {
  const size_t slash = trust_file.rfind('/');
  return (slash == std::string::npos ? std::string() : trust_file.substr(0, slash + 1)) + "verified";
}

}  // namespace

VerifiedBundle verify_directory(const std::string& directory, const VerifiedFiles& memory) {
  std::string data, signature;
  if (!read_bounded(directory + "/" + protocol::bundle::manifest, limits::bundle::manifest_bytes, &data)) {
    throw NoManifest(directory + " is not a bundle: it has no " + protocol::bundle::manifest);
  }
  VerifiedBundle bundle{directory, to_hexadecimal(sha256(data)), check_manifest(data), {}};
  if (read_bounded(directory + "/" + protocol::bundle::signature, limits::bundle::signature_bytes, &signature)) {
    bundle.signature = parse_signature(signature);
    check_signature(data, *bundle.signature);
  }
  check_names(directory, bundle.manifest, bundle.signature.has_value());
  check_files(directory, bundle, memory);
  return bundle;
}

OpenedBundle open_bundle(const std::string& directory, const std::string& trust_file, const std::string& trust) {
  try {
    OpenedBundle opened{verify_directory(directory, VerifiedFiles(verified_folder(trust_file))), {}};
    opened.warning = check_trust(opened.bundle, read_trusted_keys(trust_file), trust);
    return opened;
  } catch (const NoManifest&) {
    throw;
  } catch (const ContractError& error) {
    throw ContractError("bundle " + directory + ": " + error.what());
  }
}

}  // namespace edgetlm
