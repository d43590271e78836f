// What the host can ask of a session, one method a command.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor/execute/engine.h"
#include "executor/measure/measure.h"
#include "executor/wire/wire.h"

namespace edgetlm {

class Commands {
 public:
  // `trust_file` names the keys whose bundles may be loaded.
  Commands(Meter* meter, int threads, std::string trust_file)
      : meter_(meter), threads_(threads), trust_file_(std::move(trust_file)) {}

  // The reply to one request, errors included: a session survives any error of a model.
  Reply answer(const JsonObject& header, const Buffer& blob);
  // Times the kernels of variants of the loaded model for RPC, whose thread is another one: requests wait for its end.
  // AgentError where no model is loaded or no inputs are set; see measure/variants.h.
  std::string measure_variants(const std::string& specification, const std::vector<tvm::ffi::Module>& libraries);

 private:
  Reply dispatch(const std::string& command, const JsonObject& header, const Buffer& blob);
  Reply load(const JsonObject& header);
  Reply inputs(const JsonObject& header, const Buffer& blob);
  Reply run(const JsonObject& header, const Buffer& blob);
  Reply measure(const JsonObject& header);
  Reply profile(const JsonObject& header);
  Reply intermediates(const JsonObject& header);
  void need_model() const;
  // Whether the model has not run since it was loaded; whoever asks runs it.
  bool need_inputs();

  Meter* meter_;
  const int threads_;
  const std::string trust_file_;
  // Held by the thread that uses the engine.
  std::mutex turn_;
  Engine engine_;
  bool loaded_ = false;
  bool bound_ = false;
  // Whether the loaded model has run: only its first run is told apart.
  bool ran_ = false;
};

}  // namespace edgetlm
