// TVM RPC for the host: handshake with a secret key, then the runtime's own server loop.
#pragma once

#include <functional>
#include <string>

#include "executor/measure/measure.h"
#include "executor/serve/commands.h"

namespace edgetlm {

// Whether a connection that begins so speaks RPC; no length of a frame's header begins with its magic number.
bool is_rpc(const std::string& data);
// Bytes that are missing of a handshake that begins with `data`; 0 when more would be of no use.
int64_t rpc_missing(const std::string& data);
// Whether the sender of a whole handshake knows the session's secret.
bool knows_key(const std::string& data, const std::string& key);

// The three answers to a handshake: welcome, another client is served, wrong key.
std::string rpc_welcome();
std::string rpc_duplicate();
std::string rpc_mismatch();

// Registers what the runtime's server calls, "edgetlm.measure" and "edgetlm.measure_variants".
//
// Uploads go to `folder` and modules are loaded from it; no other can be named.
void register_rpc(const std::string& folder, Meter* meter, Commands* commands);

// Serves after the handshake until the client closes. `set_busy` gets true when a request has come, and false when the server
// waits for the next.
void serve_rpc(int connection, const std::function<void(bool)>& set_busy);

// Whether two texts are equal, in a time that depends on the length of the given one only.
bool equal_secret(const std::string& given, const std::string& secret);

}  // namespace edgetlm
