// TVM RPC for the host: handshake with a secret key, then the runtime's own server loop.
#pragma once

#include <functional>
#include <string>

#include "executor/measure.h"

namespace edgetlm {

// The first bytes of a connection that speaks RPC; no length of a frame's header begins so.
inline constexpr unsigned char kRpcMagicBytes[4] = {0x71, 0xf2, 0x0f, 0x00};

// Answers the rest of a handshake whose magic was read; whether the client may be served.
//
// `take` is called for a client that knows the key, and false if another one is served.
bool accept_rpc(int connection, const std::string& key, const std::function<bool()>& take);

// Registers what the runtime's server calls, and "edgetlm.measure".
//
// Uploads go to `folder` and modules are loaded from it; no other can be named.
void register_rpc(const std::string& folder, Meter* meter);

// Serves until the client closes. `set_busy` is told true when a request has come, and false when the server
// waits for the next.
void serve_rpc(int connection, const std::function<void(bool)>& set_busy);

// Whether two texts are equal, in a time that depends on the length of the given one only.
bool equal_secret(const std::string& given, const std::string& secret);

}  // namespace edgetlm
