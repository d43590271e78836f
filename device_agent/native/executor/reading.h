// Readers of what comes from elsewhere, by themselves: tests ask them and the Python ones the same.
#pragma once

#include <string>

namespace edgetlm {

// Reads inputs from stdin, each behind its length in four bytes (the first is the highest), with the reader of a
// kind, and answers each with a line on stdout: "ok" (of a measuring case with what is decided, as JSON), or "refused"
// and the reason. Returns the exit status.
//
//   manifest    a manifest.json
//   signature   a manifest.json behind its length in four bytes, then a manifest.sig
//   trust       a trust.json
//   bundle      a bundle's folder, the path of a trust.json, and "signed" or "unsigned", with zero bytes between
//   json        a JSON text
//   sha256      a digest of 32 bytes, then what it is of
//   ed25519     a public key of 32 bytes, a signature of 64, then what it is of
//   frame       a frame but for its blob, to an executor
//   hello       the first request of a connection
//   tensors     a frame's header with "tensors"
//   plan        how a measurement is to be made
//   variants    how variants of a model are to be measured
//   measuring   a case of tests/vectors/measuring.json
int read_inputs(const std::string& kind);

}  // namespace edgetlm
