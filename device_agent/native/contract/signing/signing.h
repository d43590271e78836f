// manifest.sig: who vouches for a bundle; as in device_agent/contract/signing.py.
#pragma once

#include <string>
#include <string_view>

#include "contract/text/strict_json.h"

namespace edgetlm {

struct BundleSignature {
  std::string signer;
  // In hexadecimal.
  std::string key;
  std::string signature;
};

// The content of manifest.sig; ContractError where it is no signature of this schema.
BundleSignature parse_signature(std::string_view data);
// ContractError where a signature is not that of a manifest; whether the signer is trusted is another question.
void check_signature(std::string_view manifest, const BundleSignature& signature);

// Whether a text is a public key in hexadecimal, or can name a signer.
bool is_key(const JsonValue* value);
bool is_signer(const JsonValue* value);
// A key or a version as people see it.
std::string short_of(const std::string& key);

}  // namespace edgetlm
