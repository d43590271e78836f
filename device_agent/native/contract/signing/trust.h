// Whose bundles a device runs: trust.json, as device_agent/contract/trust.py writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/signing/signing.h"

namespace edgetlm {

// A key that is trusted, or a key or the version of a bundle that was revoked.
struct TrustEntry {
  // In hexadecimal.
  std::string identity;
  std::string name;
  std::string since;
};

struct TrustedKeys {
  std::vector<TrustEntry> keys;
  std::vector<TrustEntry> revoked;

  // ContractError where a bundle may not be used, whose signature has been checked: it is not signed, by nobody
  // who is trusted, or was revoked.
  void check(const std::string& version, const std::optional<BundleSignature>& signature) const;
  // ContractError where a bundle or its signer was revoked.
  void check_not_revoked(const std::string& version, const std::optional<BundleSignature>& signature) const;
};

// The content of trust.json; std::invalid_argument where it is damaged.
TrustedKeys parse_trusted_keys(std::string_view data);
// The content of the file, of which nothing is trusted where there is none; ContractError where it is damaged,
// or others than its user may write to it.
TrustedKeys read_trusted_keys(const std::string& path);

}  // namespace edgetlm
