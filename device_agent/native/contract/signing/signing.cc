#include "contract/signing/signing.h"

#include <stdexcept>

#include "contract/error.h"
#include "contract/hash.h"
#include "contract/limits.h"
#include "contract/protocol.h"
#include "contract/text/text.h"

namespace edgetlm {
namespace {

constexpr size_t kShort = 16;

const std::string* text_in(const JsonValue& fields, const char* name) {
  const JsonValue* value = fields.find(name);
  return value == nullptr ? nullptr : value->text();
}

JsonValue parse_fields_of_signature(std::string_view data) {
  try {
    return parse_strict(data, limits::bundle::signature_bytes, protocol::bundle::signature);
  } catch (const std::invalid_argument& error) {
    throw ContractError(error.what());
  }
}

}  // namespace

bool is_key(const JsonValue* value) { return value != nullptr && is_digits(value->text(), 2 * kKeyBytes); }

bool is_signer(const JsonValue* value) {
  const std::string* name = value == nullptr ? nullptr : value->text();
  return name != nullptr && !name->empty() && is_printable(*name) &&
         characters_of(*name).size() <= limits::bundle::signer_characters;
}

std::string short_of(const std::string& key) { return key.substr(0, kShort); }

BundleSignature parse_signature(std::string_view data) {
  const JsonValue fields = parse_fields_of_signature(data);
  const std::string name = protocol::bundle::signature;
  const std::string* schema = text_in(fields, "schema");
  if (schema == nullptr || *schema != protocol::bundle::signature_schema) {
    throw ContractError(name + " is not of the schema " + protocol::bundle::signature_schema);
  }
  if (!is_signer(fields.find("signer")) || !is_key(fields.find("key"))) {
    throw ContractError(name + " names no signer with a key");
  }
  const std::string* signature = text_in(fields, "signature");
  if (!is_digits(signature, 2 * kSignatureBytes)) throw ContractError(name + " holds no signature");
  return {*text_in(fields, "signer"), *text_in(fields, "key"), *signature};
}

void check_signature(std::string_view manifest, const BundleSignature& signature) {
  std::string message = protocol::bundle::signature_schema;
  message += '\0';
  message += sha256(manifest) + signature.signer;
  if (!ed25519_verify(from_hexadecimal(signature.key), message, from_hexadecimal(signature.signature))) {
    throw ContractError("its signature is not that of its manifest: somebody changed one of them");
  }
}

}  // namespace edgetlm
