#include "executor/reading.h"

#include <stdio.h>

#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#include "contract/hash.h"
#include "contract/manifest.h"
#include "contract/signing/signing.h"
#include "contract/signing/trust.h"
#include "contract/text/strict_json.h"
#include "contract/text/text.h"
#include "contract/verify.h"
#include "executor/frame_reading.h"
#include "executor/measure/repeats.h"
#include "executor/wire/json.h"

namespace edgetlm {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr char kMeasuring[] = "measuring";

size_t length_in(const std::string& bytes) {
  size_t length = 0;
  for (size_t index = 0; index < kLengthBytes; ++index) {
    length = length << 8 | static_cast<unsigned char>(bytes[index]);
  }
  return length;
}

bool read_exact(size_t size, std::string* data) {
  data->resize(size);
  return fread(data->data(), 1, size, stdin) == size;
}

void read_manifest(const std::string& input) { check_manifest(input); }

void read_signature(const std::string& input) {
  if (input.size() < kLengthBytes) throw std::invalid_argument("there is no manifest");
  const size_t size = length_in(input);
  if (size > input.size() - kLengthBytes) throw std::invalid_argument("the manifest is cut short");
  const std::string manifest = input.substr(kLengthBytes, size);
  check_signature(manifest, parse_signature(input.substr(kLengthBytes + size)));
}

void read_trust(const std::string& input) { parse_trusted_keys(input); }

void read_bundle(const std::string& input) {
  const size_t first = input.find('\0'), last = input.rfind('\0');
  if (first == last) throw std::invalid_argument("there are no three parts");
  open_bundle(input.substr(0, first), input.substr(first + 1, last - first - 1), input.substr(last + 1));
}

void read_json(const std::string& input) { parse_json(input); }

void read_sha256(const std::string& input) {
  if (input.size() < kDigestBytes) throw std::invalid_argument("there is no digest");
  for (const bool portable : {false, true}) {
    Sha256 hasher(portable);
    hasher.update(input.data() + kDigestBytes, input.size() - kDigestBytes);
    if (hasher.digest() != input.substr(0, kDigestBytes)) throw std::invalid_argument("another digest");
  }
}

void read_ed25519(const std::string& input) {
  constexpr size_t kBefore = kKeyBytes + kSignatureBytes;
  if (input.size() < kBefore) throw std::invalid_argument("there is no signature");
  const std::string_view all = input;
  if (!ed25519_verify(all.substr(0, kKeyBytes), all.substr(kBefore), all.substr(kKeyBytes, kSignatureBytes))) {
    throw std::invalid_argument("it does not match");
  }
}

const std::map<std::string, void (*)(const std::string&)> kReaders = {
    {"manifest", read_manifest}, {"signature", read_signature}, {"trust", read_trust}, {"bundle", read_bundle},
    {"json", read_json},         {"sha256", read_sha256},       {"ed25519", read_ed25519}, {"frame", read_frame},
    {"hello", read_hello},       {"tensors", read_tensors},     {"plan", read_plan},
    {"variants", read_variant_plan}};

// The line for an input that is read.
std::string said(const std::string& kind, const std::string& input) {
  if (kind == kMeasuring) return "ok " + measuring_case(input);
  kReaders.at(kind)(input);
  return "ok";
}

}  // namespace

int read_inputs(const std::string& kind) {
  if (kind != kMeasuring && kReaders.count(kind) == 0) {
    fprintf(stderr, "there is no reader of %s\n", printable(kind).c_str());
    return 2;
  }
  std::string length, input;
  while (read_exact(kLengthBytes, &length) && read_exact(length_in(length), &input)) {
    try {
      puts(said(kind, input).c_str());
    } catch (const std::exception& error) {
      printf("refused %s\n", printable(error.what()).c_str());
    }
    fflush(stdout);
  }
  return 0;
}

}  // namespace edgetlm
