#include "contract/hash.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

extern "C" {
void edgetlm_sha256_init(void* state);
void edgetlm_sha256_update(void* state, const void* data, size_t size);
void edgetlm_sha256_final(void* state, void* digest);
int edgetlm_ed25519_verify(const void* key, const void* message, size_t size, const void* signature);
#if defined(__x86_64__) || defined(__aarch64__)
void edgetlm_sha256_update_accelerated(void* state, const void* data, size_t size);
#endif
}

namespace edgetlm {
namespace {

using Update = void (*)(void*, const void*, size_t);

#if defined(__x86_64__)
// Bits as in Intel's manual, volume 2A, CPUID; the second part asks whether the system keeps vector registers.
bool has_sha_instructions() {
  constexpr unsigned kSavesState = 1u << 27, kAvx = 1u << 28, kAvx2 = 1u << 5, kSha = 1u << 29, kVectors = 6;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kSavesState) == 0 || (c & kAvx) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kVectors) != kVectors) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & kAvx2) != 0 && (b & kSha) != 0;
}
#elif defined(__aarch64__)
bool has_sha_instructions() { return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }
#endif

Update fastest_update() {
#if defined(__x86_64__) || defined(__aarch64__)
  static const bool accelerated = has_sha_instructions();
  if (accelerated) return edgetlm_sha256_update_accelerated;
#endif
  return edgetlm_sha256_update;
}

unsigned value_of(char digit) { return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10); }

}  // namespace

Sha256::Sha256(bool portable) : update_(portable ? edgetlm_sha256_update : fastest_update()) {
  edgetlm_sha256_init(state_);
}

void Sha256::update(const void* data, size_t size) {
  if (size > 0) update_(state_, data, size);
}

std::string Sha256::digest() {
  std::string digest(kDigestBytes, '\0');
  edgetlm_sha256_final(state_, &digest[0]);
  return digest;
}

std::string sha256(std::string_view data) {
  Sha256 hasher;
  hasher.update(data.data(), data.size());
  return hasher.digest();
}

bool ed25519_verify(std::string_view key, std::string_view message, std::string_view signature) {
  if (key.size() != kKeyBytes || signature.size() != kSignatureBytes) return false;
  return edgetlm_ed25519_verify(key.data(), message.data(), message.size(), signature.data()) == 1;
}

std::string to_hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char one : bytes) {
    const auto byte = static_cast<unsigned char>(one);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xf];
  }
  return text;
}

std::string from_hexadecimal(std::string_view digits) {
  std::string bytes;
  for (size_t at = 0; at + 1 < digits.size(); at += 2) {
    bytes += static_cast<char>(value_of(digits[at]) << 4 | value_of(digits[at + 1]));
  }
  return bytes;
}

}  // namespace edgetlm
