// What manifest.json of a bundle must be like before anything is done by it: the same rules as in
// device_agent/contract/manifest.py, which describes the fields.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "contract/error.h"
#include "contract/text/strict_json.h"

namespace edgetlm {

struct FileEntry {
  int64_t size = 0;
  // In hexadecimal.
  std::string sha256;
};

// Name, shape and element type of an input or output, and the axes of the shape that are the length.
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;
  std::vector<int64_t> open;
};

// The dimension that a bundle leaves open; without a name there is none.
struct LengthRange {
  std::string name;
  int64_t low = 0;
  int64_t high = 0;
};

// A tensor of params.bin.
struct Parameter {
  int64_t offset = 0;
  int64_t nbytes = 0;
  std::vector<int64_t> shape;
  std::string dtype;
};

// What a language model has beside its signature; without a context it is none.
struct DecoderInfo {
  int64_t context = 0;
  int64_t chunk = 0;
  // Tokens of one call of the function "long_prefill", more than those of a chunk; 0 where the library has none.
  int64_t long_chunk = 0;
  // Tokens of one call of the function "verify"; 0 where the library has none.
  int64_t verified = 0;
  // Texts that have a state each, and that one call of the function "together" continues.
  int64_t sequences = 1;
  // 8 where "prefill" and "long_prefill" round activations to so many bits. They give no logits then: the last
  // token of a prompt is for main.
  int64_t rounding = 0;
  int64_t vocabulary = 0;
  std::vector<int64_t> end_tokens;
};

struct CheckedManifest {
  std::string name;
  std::string backend;
  // By name; none of them leads out of the bundle.
  std::map<std::string, FileEntry> files;
  std::string model;
  int threads = 1;
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  LengthRange range;
  // Tensors that the model keeps from call to call.
  std::vector<TensorInfo> state;
  // Of all texts.
  int64_t state_bytes = 0;
  DecoderInfo decoder;
  std::vector<Parameter> parameters;
  // Whether a call reads most of the parameters, each about once.
  bool streamed = false;
  std::string target_kind;
};

// The manifest of a bundle; ContractError where it is none, of another version, or names what cannot be.
CheckedManifest check_manifest(std::string_view data);

// What the state of a text belongs to: the digest of what computes it, in hexadecimal; as `state_digest` of
// device_agent/contract/manifest.py.
std::string state_digest(const CheckedManifest& manifest);

// Whether a text is so many hexadecimal digits in lower case.
bool is_digits(const std::string* text, size_t count);

}  // namespace edgetlm
