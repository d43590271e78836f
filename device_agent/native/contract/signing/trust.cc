#include "contract/signing/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "contract/error.h"
#include "contract/files.h"
#include "contract/limits.h"
#include "contract/protocol.h"
#include "contract/text/text.h"

namespace edgetlm {
namespace {

constexpr mode_t kWritableByOthers = 022;
constexpr size_t kReasonCharacters = 100;

std::vector<TrustEntry> entries_of(const JsonValue* value, const char* first) {
  const JsonList* items = value == nullptr ? nullptr : value->items();
  if (items == nullptr || items->size() > static_cast<size_t>(limits::bundle::trust_entries)) {
    throw std::invalid_argument("a list is none, or too long");
  }
  std::vector<TrustEntry> entries;
  for (const JsonValue& item : *items) {
    const JsonValue *identity = item.find(first), *name = item.find("name"), *since = item.find("since");
    if (!is_key(identity) || !is_signer(name) || !is_signer(since)) {
      throw std::invalid_argument("an entry is not of a key");
    }
    entries.push_back({*identity->text(), *name->text(), *since->text()});
  }
  return entries;
}

[[noreturn]] void unreadable(const std::string& path, int number) {
  throw ContractError(path + " cannot be read: " + strerror(number));
}

}  // namespace

void TrustedKeys::check(const std::string& version, const std::optional<BundleSignature>& signature) const {
  check_not_revoked(version, signature);
  if (!signature) {
    throw ContractError(
        "it is not signed; if you know where it comes from, load it with trust='unsigned' (sdk: --trust unsigned)");
  }
  const auto known = [&](const TrustEntry& one) { return one.identity == signature->key; };
  if (std::any_of(keys.begin(), keys.end(), known)) return;
  throw ContractError("it is signed by " + printable(signature->signer) + " (key " + short_of(signature->key) +
                      "), who is not trusted here; if you know them: sdk keys trust " + signature->key +
                      " --name NAME, or load it with trust='unsigned' (sdk: --trust unsigned)");
}

void TrustedKeys::check_not_revoked(const std::string& version,
                                    const std::optional<BundleSignature>& signature) const {
  for (const TrustEntry& one : revoked) {
    if (one.identity == version) {
      throw ContractError("version " + short_of(version) + " was revoked on " + one.since);
    }
    if (signature && one.identity == signature->key) {
      throw ContractError("it is signed by " + printable(one.name) + " (key " + short_of(one.identity) +
                          "), whose key was revoked on " + one.since);
    }
  }
}

TrustedKeys parse_trusted_keys(std::string_view data) {
  const JsonValue fields = parse_strict(data, limits::bundle::trust_bytes, protocol::bundle::trust);
  const JsonValue* schema = fields.find("schema");
  if (schema == nullptr || schema->text() == nullptr || *schema->text() != protocol::bundle::trust_schema) {
    throw std::invalid_argument(std::string("not of the schema ") + protocol::bundle::trust_schema);
  }
  return {entries_of(fields.find("keys"), "key"), entries_of(fields.find("revoked"), "identity")};
}

TrustedKeys read_trusted_keys(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return {};
  if (descriptor < 0) unreadable(path, errno);
  const OpenFile file(descriptor);
  struct stat status {};
  if (fstat(descriptor, &status) != 0) unreadable(path, errno);
  const bool own = status.st_uid == 0 || status.st_uid == geteuid();
  if (!own || (status.st_mode & kWritableByOthers) != 0) {
    throw ContractError(path + " can be written to by others: chown it to its user and chmod 600");
  }
  try {
    return parse_trusted_keys(read_to(descriptor, limits::bundle::trust_bytes + 1));
  } catch (const FileFailure& failure) {
    unreadable(path, failure.number);
  } catch (const std::invalid_argument& error) {
    throw ContractError(path + " is damaged (" + printable(error.what(), kReasonCharacters) +
                        "): remove it and add the hosts again");
  }
}

}  // namespace edgetlm
