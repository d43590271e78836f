// Readers of the wire protocol by themselves, for `read_inputs`; what is refused is a std::runtime_error that begins
// with the kind of the error.
#pragma once

#include <string>

namespace edgetlm {

// A frame's length and header, as an executor reads it from a client that it knows: with the size of its blob.
void read_frame(const std::string& input);
// A first request, but for its secret.
void read_hello(const std::string& input);
// A header whose field "tensors" describes the tensors of a blob of `blob_bytes`.
void read_tensors(const std::string& input);
// The plan of a measurement.
void read_plan(const std::string& input);
// The plan of variants of a model.
void read_variant_plan(const std::string& input);

}  // namespace edgetlm
