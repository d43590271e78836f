// The serving half of RPC. The channel is the executor's own: see executor/serve/rpc.cc.
#include <runtime/rpc/rpc_channel.cc>
#include <runtime/rpc/rpc_device_api.cc>
#include <runtime/rpc/rpc_endpoint.cc>
#include <runtime/rpc/rpc_event_impl.cc>
#include <runtime/rpc/rpc_local_session.cc>
#include <runtime/rpc/rpc_module.cc>
#include <runtime/rpc/rpc_server_env.cc>
#include <runtime/rpc/rpc_session.cc>
