// A bundle's directory against its manifest: every byte that is going to be used, and nothing beside it; as in
// device_agent/contract/verify.py.
#pragma once

#include <optional>
#include <string>

#include "contract/manifest.h"
#include "contract/signing/signing.h"
#include "contract/signing/trust.h"
#include "contract/verified_files.h"

namespace edgetlm {

// A bundle whose files are what its manifest says.
struct VerifiedBundle {
  std::string directory;
  // The SHA-256 of its manifest, which is its identity, in hexadecimal.
  std::string version;
  CheckedManifest manifest;
  // Checked; whether the signer is trusted is another question.
  std::optional<BundleSignature> signature;
};

// A bundle that may be used.
struct OpenedBundle {
  VerifiedBundle bundle;
  // One line where it is used without a trusted signature, else empty.
  std::string warning;
};

// Checks a bundle's manifest, signature and files; ContractError where something is missing, too much, or not
// what it should be.
VerifiedBundle verify_directory(const std::string& directory, const VerifiedFiles& memory);

// Checks a bundle and whose it is.
//
// `trust_file` is trust.json, beside which is remembered what was checked. `trust` is "signed" where the signer
// has to be trusted, or "unsigned" where anybody or nobody will do but for what was revoked. ContractError where
// it may not be used, with a text that begins with the directory.
OpenedBundle open_bundle(const std::string& directory, const std::string& trust_file, const std::string& trust);

}  // namespace edgetlm
