// Runs one loaded bundle: inputs, inferences, outputs, and what its kernels do.
#pragma once

#include <tvm/ffi/any.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "executor/errors.h"
#include "executor/execute/bundle.h"
#include "executor/wire/json.h"
#include "executor/wire/wire.h"

namespace edgetlm {

class Engine {
 public:
  // The loaded model, with the inputs that were bound last.
  const Model& model() const { return *model_; }
  // Loads a bundle that was checked, its weights `mapped` from their file or as there is memory; returns its signature.
  JsonObject load(const VerifiedBundle& bundle, int threads, bool mapped);
  // Sets the inputs of the following inferences, in the model's order.
  void bind(const std::vector<TensorView>& inputs);
  // One inference.
  void invoke() { result_ = model_->invoke(); }
  // One call of a function beside main.
  void call(const std::string& name, const std::vector<TensorView>& inputs) { result_ = model_->call(name, inputs); }
  // Outputs of the last call, in the model's order.
  Reply outputs() const;
  // Time of each kernel in place, over `runs` inferences after one that is not counted.
  JsonArray profile(int64_t runs);
  // Outputs of kernels from call `start` on, until `max_bytes` are reached.
  Reply intermediates(int64_t start, int64_t max_bytes);

 private:
  std::unique_ptr<Model> model_;
  tvm::ffi::Any result_;
};

// The error where TVM failed to do something, as one line.
AgentError tvm_fails(const std::string& action, std::string_view message);

}  // namespace edgetlm
