// SHA-256 and Ed25519, by crypto/crypto.zig.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace edgetlm {

inline constexpr size_t kDigestBytes = 32;
inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kSignatureBytes = 64;

class Sha256 {
 public:
  // With the processor's own instructions where it has some, unless these are not wanted.
  explicit Sha256(bool portable = false);
  void update(const void* data, size_t size);
  // The digest's bytes; the object is of no use after it.
  std::string digest();

 private:
  void (*const update_)(void*, const void*, size_t);
  alignas(16) unsigned char state_[128];
};

std::string sha256(std::string_view data);

// Whether a signature is that of a message by the owner of a public key; all are bytes.
bool ed25519_verify(std::string_view key, std::string_view message, std::string_view signature);

std::string to_hexadecimal(std::string_view bytes);
// Of digits in lower case, an even number of them.
std::string from_hexadecimal(std::string_view digits);

}  // namespace edgetlm
