#include "contract/manifest.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "contract/hash.h"
#include "contract/limits.h"
#include "contract/protocol.h"
#include "contract/text/text.h"

namespace edgetlm {
namespace {

namespace bounds = limits::bundle;

// What a bundle carries for people and checks; it decides nothing of what runs.
constexpr const char* kBeside[] = {"golden.npz", "tasks.json"};
constexpr size_t kSchemaCharacters = 80;

void need(bool condition, const std::string& complaint) {
  if (!condition) throw ContractError(complaint);
}

bool is_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         letter == '_';
}

// Whether a text can name a bundle, or a file in one: it names no other folder and hides nothing.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= static_cast<size_t>(bounds::name_characters) && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char letter) { return is_letter(letter) || letter == '.' || letter == '-'; });
}

template <typename Names>
std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

int64_t whole(const JsonValue* value, const std::string& what, int64_t low, int64_t high) {
  const int64_t* number = value == nullptr ? nullptr : value->integer();
  need(number != nullptr && *number >= low && *number <= high,
       what + " is " + shown(value) + ", not a whole number from " + std::to_string(low) + " to " +
           std::to_string(high));
  return *number;
}

const JsonList& list(const JsonValue* value, const std::string& what, int64_t longest) {
  const JsonList* items = value == nullptr ? nullptr : value->items();
  need(items != nullptr && items->size() <= static_cast<size_t>(longest),
       what + " is not a list of at most " + std::to_string(longest));
  return *items;
}

const JsonFields& object(const JsonValue* value, const std::string& what) {
  const JsonFields* fields = value == nullptr ? nullptr : value->fields();
  need(fields != nullptr, what + " is not an object");
  return *fields;
}

const std::string* text(const JsonValue* value) { return value == nullptr ? nullptr : value->text(); }

std::map<std::string, FileEntry> check_files(const JsonValue* value) {
  const JsonFields& entries = object(value, "the list of files");
  const size_t count = entries.entries.size();
  need(count > 0 && count <= static_cast<size_t>(bounds::files),
       "it names " + std::to_string(count) + " files, not 1 to " + std::to_string(bounds::files));
  std::map<std::string, FileEntry> files;
  int64_t total = 0;
  for (const auto& [name, fields] : entries.entries) {
    const JsonValue quoted{std::string(name)};
    need(is_name(name) && name != protocol::bundle::manifest && name != protocol::bundle::signature,
         "it names the file " + shown(&quoted) + " outside of the bundle");
    object(&fields, "the entry of " + name);
    const int64_t size = whole(fields.find("size"), "the size of " + name, 0, bounds::file_bytes);
    const std::string* digest = text(fields.find("sha256"));
    need(is_digits(digest, 2 * kDigestBytes), "the sha256 of " + name + " is not a SHA-256");
    files[name] = {size, *digest};
    total += size;
  }
  need(total <= bounds::total_bytes, "its files are too large");
  return files;
}

std::string known_dtypes() {
  std::vector<std::string> names;
  for (const ItemBytes& known : kItemBytes) names.push_back(known.dtype);
  return joined(names);
}

// Size in bytes; more than any tensor may have where it is too large.
int64_t size_of(const std::vector<int64_t>& shape, int64_t item_bytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t size = item_bytes;
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(size, dimension, &size)) return INT64_MAX;
  }
  return size;
}

// Fills in shape and type of a tensor and returns its size in bytes.
int64_t check_tensor(const JsonValue& value, const std::string& what, std::vector<int64_t>* shape,
                     std::string* dtype) {
  for (const JsonValue& dimension : list(value.find("shape"), "the shape of " + what, bounds::rank)) {
    shape->push_back(whole(&dimension, "a dimension of " + what, 0, bounds::dimension));
  }
  const std::string* named = text(value.find("dtype"));
  const ItemBytes* item = std::find_if(std::begin(kItemBytes), std::end(kItemBytes), [&](const ItemBytes& known) {
    return named != nullptr && *named == known.dtype;
  });
  need(item != std::end(kItemBytes), "the type of " + what + " is " + shown(value.find("dtype")) + ", none of " +
                                         known_dtypes());
  *dtype = *named;
  const int64_t size = size_of(*shape, item->bytes);
  need(size <= bounds::tensor_bytes, what + " is too large");
  return size;
}

std::vector<TensorInfo> check_tensors(const JsonValue& signature, const std::string& kind) {
  std::vector<TensorInfo> tensors;
  for (const JsonValue& value : list(signature.find(kind), kind, bounds::tensors)) {
    object(&value, "one of the " + kind);
    const JsonValue* name = value.find("name");
    need(text(name) != nullptr, "one of the " + kind + " has no name");
    TensorInfo info{*text(name), {}, {}, {}};
    check_tensor(value, shown(name) + " of the " + kind, &info.shape, &info.dtype);
    if (const JsonValue* open = value.find("open")) {
      const int64_t last = static_cast<int64_t>(info.shape.size()) - 1;
      for (const JsonValue& axis : list(open, "the open axes", bounds::rank)) {
        info.open.push_back(whole(&axis, "an open axis", 0, last));
      }
    }
    tensors.push_back(std::move(info));
  }
  return tensors;
}

LengthRange check_range(const JsonValue* value) {
  if (value == nullptr || value->is_null()) return {};
  object(value, "the range of lengths");
  const std::string* name = text(value->find("name"));
  need(name != nullptr, "the range of lengths has no name");
  const int64_t low = whole(value->find("low"), "the least length", 1, bounds::dimension);
  return {*name, low, whole(value->find("high"), "the greatest length", low, bounds::dimension)};
}

std::vector<Parameter> check_parameters(const JsonValue* value, const CheckedManifest& manifest) {
  std::vector<Parameter> parameters;
  if (value == nullptr) return parameters;
  const JsonList& entries = list(value, "the list of parameters", bounds::parameters);
  if (entries.empty()) return parameters;
  const auto file = manifest.files.find(protocol::bundle::parameters);
  need(file != manifest.files.end() && manifest.backend == "tvm",
       std::string("it has parameters and no ") + protocol::bundle::parameters + " of the backend tvm");
  const int64_t available = file->second.size;
  for (const JsonValue& entry : entries) {
    const std::string what = "parameter " + std::to_string(parameters.size());
    object(&entry, what);
    Parameter parameter;
    const int64_t size = check_tensor(entry, what, &parameter.shape, &parameter.dtype);
    parameter.offset = whole(entry.find("offset"), "the offset of " + what, 0, available);
    need(parameter.offset % bounds::alignment == 0, what + " is not aligned");
    parameter.nbytes = whole(entry.find("nbytes"), "the size of " + what, 0, available);
    need(parameter.nbytes == size, what + " has not the size of its shape");
    need(size <= available - parameter.offset, what + " does not fit " + protocol::bundle::parameters);
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

void check_decoder(const JsonValue& decoder, CheckedManifest* manifest) {
  object(&decoder, "the decoder");
  DecoderInfo& info = manifest->decoder;
  info.context = whole(decoder.find("context"), "the context", 1, bounds::context);
  info.chunk = whole(decoder.find("chunk"), "the chunk", 1, info.context);
  if (const JsonValue* long_chunk = decoder.find("long_chunk")) {
    info.long_chunk = whole(long_chunk, "the long chunk", info.chunk + 1, info.context);
  }
  if (const JsonValue* verified = decoder.find("verified")) {
    const int64_t most = std::min<int64_t>(info.context, bounds::verified_tokens);
    info.verified = whole(verified, "the tokens that are verified at once", 2, most);
  }
  if (const JsonValue* rounding = decoder.find("rounding")) {
    info.rounding = whole(rounding, "the bits that a prefill rounds to", 8, 8);
  }
  info.vocabulary = whole(decoder.find("vocabulary"), "the vocabulary", 1, bounds::vocabulary);
  for (const JsonValue& token : list(decoder.find("end_tokens"), "the tokens that end a text", bounds::end_tokens)) {
    info.end_tokens.push_back(whole(&token, "a token that ends a text", 0, info.vocabulary - 1));
  }
  // Whoever generates text fills and reads these tensors without looking at the signature.
  const auto is = [](const TensorInfo& tensor, const std::vector<int64_t>& shape, const char* dtype) {
    return tensor.shape == shape && tensor.dtype == dtype;
  };
  const std::vector<TensorInfo>& taken = manifest->inputs;
  const std::vector<TensorInfo>& given = manifest->outputs;
  need(taken.size() == 2 && is(taken[0], {1}, "int32") && is(taken[1], {1}, "int32") && given.size() == 1 &&
           is(given[0], {1, info.vocabulary}, "float32"),
       "its signature is not that of a decoder: a token and a position to logits");
  if (const JsonValue* sequences = decoder.find("sequences")) {
    info.sequences = whole(sequences, "the texts that have a state", 2, bounds::sequences);
  }
}

// Fills in the state and the decoder of a manifest whose other fields are checked.
void check_state(const JsonValue& fields, const std::string& schema, CheckedManifest* manifest) {
  static const JsonList kNone;
  const JsonValue* value = fields.find("state");
  const JsonList& entries = value == nullptr ? kNone : list(value, "the state", bounds::tensors);
  need(entries.empty() == (schema == protocol::bundle::schema),
       "its schema is " + schema + ", and it has " + std::to_string(entries.size()) + " tensors of state");
  const JsonValue* decoder = fields.find("decoder");
  const bool decodes = decoder != nullptr && !decoder->is_null();
  if (entries.empty()) {
    need(!decodes, "it has a decoder and no state");
    return;
  }
  need(manifest->backend == "tvm", "it has state and a backend other than tvm");
  const JsonValue* length = fields.find("signature")->find("length");
  need(length == nullptr || length->is_null(), "it has state and a range of lengths");
  int64_t total = 0;
  for (const JsonValue& entry : entries) {
    object(&entry, "one of the state");
    const JsonValue* name = entry.find("name");
    need(text(name) != nullptr, "one of the state has no name");
    TensorInfo info{*text(name), {}, {}, {}};
    // No sum overflows: there are few tensors, and each is bounded.
    total += check_tensor(entry, shown(name) + " of the state", &info.shape, &info.dtype);
    manifest->state.push_back(std::move(info));
  }
  if (decodes) check_decoder(*decoder, manifest);
  manifest->state_bytes = total * manifest->decoder.sequences;
  need(manifest->state_bytes <= bounds::state_bytes, "its state is too large");
}

std::string check_target(const JsonValue* target) {
  if (target == nullptr) return {};
  need(target->fields() != nullptr, "its target is not an object");
  const JsonValue* kind = target->find("kind");
  need(kind == nullptr || text(kind) != nullptr, "the kind of its target is not text");
  return kind == nullptr ? std::string() : *text(kind);
}

JsonValue parse_fields(std::string_view data) {
  try {
    return parse_strict(data, bounds::manifest_bytes, protocol::bundle::manifest);
  } catch (const std::invalid_argument& error) {
    throw ContractError(error.what());
  }
}

}  // namespace

bool is_digits(const std::string* text, size_t count) {
  return text != nullptr && text->size() == count && text->find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string state_digest(const CheckedManifest& manifest) {
  std::string lines;
  for (const auto& [name, file] : manifest.files) {
    if (std::find(std::begin(kBeside), std::end(kBeside), name) != std::end(kBeside)) continue;
    lines += name + " " + std::to_string(file.size) + " " + file.sha256 + "\n";
  }
  for (const TensorInfo& tensor : manifest.state) {
    lines += tensor.dtype + " ";
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      lines += (axis == 0 ? "" : "x") + std::to_string(tensor.shape[axis]);
    }
    lines += "\n";
  }
  return to_hexadecimal(sha256(lines));
}

CheckedManifest check_manifest(std::string_view data) {
  const JsonValue fields = parse_fields(data);
  const JsonValue* schema = fields.find("schema");
  if (text(schema) == nullptr ||
      (*text(schema) != protocol::bundle::schema && *text(schema) != protocol::bundle::state_schema)) {
    const std::string found = text(schema) ? printable(*text(schema), kSchemaCharacters) : shown(schema, kSchemaCharacters);
    throw ContractError("it has the schema " + found + ", this version reads " + protocol::bundle::schema + " and " +
                        protocol::bundle::state_schema);
  }
  CheckedManifest manifest;
  const std::string* name = text(fields.find("name"));
  need(name != nullptr && is_name(*name), "its name is not made of letters, digits, dot, dash and underscore");
  manifest.name = *name;
  const std::string* backend = text(fields.find("backend"));
  std::vector<std::string> backends(std::begin(protocol::bundle::backends), std::end(protocol::bundle::backends));
  backends.insert(backends.end(), std::begin(protocol::bundle::board_backends),
                  std::end(protocol::bundle::board_backends));
  need(backend != nullptr && std::find(backends.begin(), backends.end(), *backend) != backends.end(),
       "its backend is none of " + joined(backends));
  manifest.backend = *backend;
  manifest.files = check_files(fields.find("files"));
  const std::string* model = text(fields.find("model"));
  need(model != nullptr && manifest.files.count(*model) == 1, "its model is none of its files");
  manifest.model = *model;
  manifest.threads = static_cast<int>(whole(fields.find("threads"), "threads", 1, bounds::threads));
  const JsonValue* signature = fields.find("signature");
  object(signature, "the signature");
  manifest.inputs = check_tensors(*signature, "inputs");
  manifest.outputs = check_tensors(*signature, "outputs");
  manifest.range = check_range(signature->find("length"));
  manifest.parameters = check_parameters(fields.find("parameters"), manifest);
  check_state(fields, *text(schema), &manifest);
  if (const JsonValue* streamed = fields.find("streamed")) {
    need(streamed->truth() != nullptr, "whether its parameters are streamed is not said");
    manifest.streamed = *streamed->truth();
  }
  manifest.target_kind = check_target(fields.find("target"));
  return manifest;
}

}  // namespace edgetlm
