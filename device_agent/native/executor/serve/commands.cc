#include "executor/serve/commands.h"

#include <stdio.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "executor/clock.h"
#include "executor/errors.h"
#include "executor/measure/variants.h"
#include "executor/wire/fields.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// Bytes of what is said about the launch of kernels.
constexpr size_t kLaunchLength = 400;

// Errors of the runtime that say that a request's values are wrong, by the names of Python's classes.
bool blames_request(const std::string& kind) {
  return kind == "KeyError" || kind == "TypeError" || kind == "ValueError";
}

// The bundle in a folder, checked with its signer; AgentError where it may not be used.
OpenedBundle opened_bundle(const std::string& path, const std::string& trust_file, const std::string& trust) {
  try {
    return open_bundle(path, trust_file, trust);
  } catch (const ContractError& error) {
    throw AgentError("bundle", error.what());
  }
}

}  // namespace

Reply Commands::answer(const JsonObject& header, const Buffer& blob) {
  std::string command = "None";
  try {
    command = Fields(header).name("command");
    const std::lock_guard<std::mutex> lock(turn_);
    Reply reply = dispatch(command, header, blob);
    reply.fields.Set(ffi::String("ok"), true);
    return reply;
  } catch (const AgentError& error) {
    return error_reply(error.kind(), error.what());
  } catch (const FieldError& error) {
    return error_reply("bad_request", command + ": " + error.what());
  } catch (const std::bad_alloc&) {
    return error_reply("engine", "out of memory in " + command);
  } catch (const ffi::Error& error) {
    const std::string kind(error.kind()), message(error.message());
    if (blames_request(kind)) return error_reply("bad_request", command + ": " + kind + "('" + message + "')");
    return error_reply("engine", command + " failed: " + message);
  } catch (const std::exception& error) {
    return error_reply("engine", command + " failed: " + error.what());
  }
}

std::string Commands::measure_variants(const std::string& specification, const std::vector<ffi::Module>& libraries) {
  const std::lock_guard<std::mutex> lock(turn_);
  need_inputs();
  return edgetlm::measure_variants(meter_, engine_.model(), specification, libraries);
}

Reply Commands::dispatch(const std::string& command, const JsonObject& header, const Buffer& blob) {
  if (command == "load") return load(header);
  if (command == "inputs") return inputs(header, blob);
  if (command == "run") return run(header, blob);
  if (command == "measure") return measure(header);
  if (command == "profile") return profile(header);
  if (command == "intermediates") return intermediates(header);
  throw AgentError("bad_request", "unknown command " + command + " of a session");
}

Reply Commands::load(const JsonObject& header) {
  const double begin = seconds_now();
  const Fields asked(header, "load");
  const std::string path = asked.text("path");
  if (access(path.c_str(), F_OK) != 0) throw AgentError("bad_request", path + " is not on the device");
  const std::string trust = asked.text_or("trust", "signed", limits::wire::name_characters);
  const bool mapped = asked.has("mapped") && asked.truth("mapped");
  loaded_ = bound_ = ran_ = false;
  const OpenedBundle opened = opened_bundle(path, trust_file_, trust);
  JsonObject fields{{ffi::String("signature"), engine_.load(opened.bundle, threads_, mapped)}};
  loaded_ = true;
  fields.Set(ffi::String("load_s"), seconds_now() - begin);
  if (!opened.warning.empty()) {
    fprintf(stderr, "warning: %s\n", opened.warning.c_str());
    fields.Set(ffi::String("warning"), ffi::String(opened.warning));
  }
  return Reply{fields, {}};
}

Reply Commands::inputs(const JsonObject& header, const Buffer& blob) {
  need_model();
  engine_.bind(split_tensors(header, blob));
  bound_ = true;
  return Reply{};
}

Reply Commands::run(const JsonObject& header, const Buffer& blob) {
  if (const Fields asked(header, "run"); asked.has("function")) {
    need_model();
    const auto tensors = split_tensors(header, blob);
    const double begin = seconds_now();
    engine_.call(asked.name("function"), tensors);
    const double seconds = seconds_now() - begin;
    Reply reply = engine_.outputs();
    reply.fields.Set(ffi::String("run_s"), seconds);
    return reply;
  }
  if (find(header, "tensors") != nullptr) inputs(header, blob);
  const bool first = need_inputs();
  const double begin = seconds_now();
  engine_.invoke();
  const double seconds = seconds_now() - begin;
  Reply reply = engine_.outputs();
  if (first) reply.fields.Set(ffi::String("first_run_s"), seconds);
  return reply;
}

Reply Commands::measure(const JsonObject& header) {
  need_inputs();
  const Fields asked(header, "measure");
  const JsonObject plan = asked.has("plan") ? asked.object("plan") : JsonObject();
  const auto invoke = [this] { engine_.invoke(); };
  Reply reply{meter_->measure(invoke, plan_of(plan)), {}};
  if (const std::string launch = one_line(engine_.model().launch()); !launch.empty()) {
    const Json found = find(reply.fields, "conditions");
    JsonObject conditions = found != nullptr ? object_of(found) : JsonObject();
    conditions.Set(ffi::String("launch"), ffi::String(launch.substr(0, kLaunchLength)));
    reply.fields.Set(ffi::String("conditions"), conditions);
  }
  return reply;
}

Reply Commands::profile(const JsonObject& header) {
  need_inputs();
  const int64_t runs = Fields(header, "profile").whole_or("runs", 1, limits::wire::runs, measuring::profile_runs);
  return Reply{JsonObject{{ffi::String("kernels"), engine_.profile(runs)}}, {}};
}

Reply Commands::intermediates(const JsonObject& header) {
  need_inputs();
  const Fields asked(header, "intermediates");
  const int64_t start = asked.whole_or("start", 0, limits::wire::runs, 0);
  return engine_.intermediates(start, asked.whole_or("max_bytes", 0, limits::wire::blob_bytes, limits::wire::intermediate_bytes));
}

void Commands::need_model() const {
  if (!loaded_) throw AgentError("bad_request", "no model is loaded in this session; load one first");
}

bool Commands::need_inputs() {
  need_model();
  if (!bound_) throw AgentError("bad_request", "no inputs are set in this session; send some first");
  const bool first = !ran_;
  ran_ = true;
  return first;
}

}  // namespace edgetlm
