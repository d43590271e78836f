// What the host can ask of a session, one method a command.
#pragma once

#include <string>
#include <utility>

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

 private:
  Reply dispatch(const std::string& command, const JsonObject& header, const Buffer& blob);
  Reply load(const JsonObject& header);
  Reply inputs(const JsonObject& header, const Buffer& blob);
  Reply run(const JsonObject& header, const Buffer& blob);
  Reply measure(const JsonObject& header);
  Reply profile(const JsonObject& header);
  Reply intermediates(const JsonObject& header);
  void need_model() const;
  void need_inputs() const;

  Meter* meter_;
  const int threads_;
  const std::string trust_file_;
  Engine engine_;
  bool loaded_ = false;
  bool bound_ = false;
};

}  // namespace edgetlm
