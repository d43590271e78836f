// Names, shapes and lengths of a model's inputs and outputs.
#include <algorithm>

#include "executor/errors.h"
#include "executor/execute/bundle.h"

namespace edgetlm {
namespace {

std::string list_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

JsonObject fields_of(const TensorInfo& info) {
  return JsonObject{{tvm::ffi::String("name"), tvm::ffi::String(info.name)},
                    {tvm::ffi::String("shape"), json_of(info.shape)},
                    {tvm::ffi::String("dtype"), tvm::ffi::String(info.dtype)},
                    {tvm::ffi::String("open"), json_of(info.open)}};
}

}  // namespace

void check_count(size_t given, size_t expected) {
  if (given == expected) return;
  throw AgentError("bad_request",
                   std::to_string(given) + " inputs given, the model takes " + std::to_string(expected));
}

std::vector<TensorInfo> inputs_of(const DecoderInfo& decoder, const std::string& name) {
  const auto numbers = [](const char* called, int64_t size) { return TensorInfo{called, {size}, "int32", {}}; };
  if (name == "prefill" && decoder.context > 0) {
    return {numbers("tokens", decoder.chunk), numbers("position", 1), numbers("last", 1)};
  }
  if (name == "long_prefill" && decoder.long_chunk > 0) {
    return {numbers("tokens", decoder.long_chunk), numbers("position", 1), numbers("last", 1)};
  }
  if (name == "verify" && decoder.verified > 0) return {numbers("tokens", decoder.verified), numbers("position", 1)};
  if (name == "together" && decoder.sequences > 1) {
    return {numbers("tokens", decoder.sequences), numbers("positions", decoder.sequences)};
  }
  return {};
}

std::vector<int64_t> shape_at(const TensorInfo& info, int64_t length) {
  std::vector<int64_t> sizes = info.shape;
  for (const int64_t axis : info.open) sizes.at(static_cast<size_t>(axis)) = length;
  return sizes;
}

JsonObject Signature::json() const {
  JsonArray in, out;
  for (const TensorInfo& info : inputs) in.push_back(fields_of(info));
  for (const TensorInfo& info : outputs) out.push_back(fields_of(info));
  return JsonObject{{tvm::ffi::String("inputs"), in}, {tvm::ffi::String("outputs"), out}};
}

std::string Signature::described(const TensorInfo& info) const {
  std::string text;
  for (size_t axis = 0; axis < info.shape.size(); ++axis) {
    const bool open = std::count(info.open.begin(), info.open.end(), static_cast<int64_t>(axis)) > 0;
    text += (axis ? ", " : "") + (open ? range.name : std::to_string(info.shape[axis]));
  }
  return info.dtype + "[" + text + "]";
}

int64_t Signature::length_of(const std::vector<TensorView>& given) const {
  const TensorInfo* first = nullptr;
  int64_t found = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorInfo& info = inputs[i];
    const std::vector<int64_t>& shape = given[i].shape;
    const bool measured = !info.open.empty() && shape.size() == info.shape.size();
    const int64_t length = measured ? shape[static_cast<size_t>(info.open[0])] : 0;
    if (shape != shape_at(info, length) || given[i].dtype != info.dtype || (!info.open.empty() && length == 0)) {
      throw AgentError("bad_request", "input " + info.name + " is " + given[i].dtype + list_text(shape) +
                                          ", the model takes " + described(info));
    }
    if (info.open.empty()) continue;
    if (first != nullptr && found != length) {
      throw AgentError("bad_request", "input " + info.name + " has length " + std::to_string(length) + ", but " +
                                          first->name + " has " + std::to_string(found) + "; give all the same");
    }
    if (first == nullptr) {
      first = &info;
      found = length;
    }
  }
  if (first == nullptr || range.name.empty()) return 0;
  if (found < range.low || found > range.high) {
    throw AgentError("bad_request", "input " + first->name + " has length " + std::to_string(found) +
                                        ", the model takes " + range.name + "=" + std::to_string(range.low) + ".." +
                                        std::to_string(range.high) +
                                        "; give another, or deploy the model for a wider range");
  }
  return found;
}

}  // namespace edgetlm
