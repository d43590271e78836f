// What the host can ask of a session, one method a command.
#pragma once

#include <string>

#include "executor/engine.h"
#include "executor/measure.h"
#include "executor/wire.h"

namespace edgetlm {

class Commands {
 public:
  Commands(Meter* meter, int threads) : meter_(meter), threads_(threads) {}

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
  Engine engine_;
  bool loaded_ = false;
  bool bound_ = false;
};

}  // namespace edgetlm
