// A verified bundle of the tvm backend: its weights mapped from the file, and its library on the virtual machine.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/pages.h"
#include "contract/verify.h"
#include "cuda/graph.h"
#include "executor/wire/json.h"
#include "executor/wire/wire.h"

namespace edgetlm {

// The shape of an input or output where the open dimension has a length.
std::vector<int64_t> shape_at(const TensorInfo& info, int64_t length);

// What goes into a model and what comes out, in order.
struct Signature {
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  LengthRange range;

  // The length of one set of inputs, 0 where every dimension is a number; AgentError where one does not fit.
  int64_t length_of(const std::vector<TensorView>& given) const;
  JsonObject json() const;

 private:
  std::string described(const TensorInfo& info) const;
};

// AgentError where the number of given inputs is not the number that is taken.
void check_count(size_t given, size_t expected);
// What a language model's function beside main takes; nothing where it has none of that name.
std::vector<TensorInfo> inputs_of(const DecoderInfo& decoder, const std::string& name);

// A loaded bundle.
class Model {
 public:
  // `mapped`: weights stay in the pages of their file, even where a copy of them has room.
  // AgentError where it is of another backend, or there is no such processor.
  Model(const VerifiedBundle& bundle, int threads, bool mapped);

  const Signature& signature() const { return signature_; }
  // The tensors that a call reads, of the length set last (at first the greatest).
  const std::vector<tvm::runtime::Tensor>& inputs() const { return inputs_; }
  // Makes the inputs of one length; what they held is lost.
  void set_length(int64_t length);
  // One call of a language model's function beside main, on the state that main has; AgentError where there is no such
  // function, or the inputs are not its own.
  tvm::ffi::Any call(const std::string& name, const std::vector<TensorView>& inputs);
  // One inference.
  tvm::ffi::Any invoke() const {
    tvm::ffi::Any result = graphed_ != nullptr ? (*graphed_)() : invoke_();
    synchronise();
    return result;
  }
  // How a GPU's kernels are started by `invoke`; empty on the CPU.
  std::string launch() const { return graphed_ == nullptr ? "" : graphed_->launch(); }
  // Waits until a GPU has done what it was asked to do; the CPU never has work outstanding.
  void synchronise() const;
  // The model as a function that reports each call of the machine to `callback`; with the kernels of another library
  // of the same model where one is given. The machine makes each tensor, so that the callback knows which of them have
  // been written to.
  tvm::ffi::Function instrumented(const tvm::ffi::Function& callback,
                                  const tvm::ffi::Optional<tvm::ffi::Module>& library = std::nullopt) const;
  // The same with the calls that `invoke` makes, on the tensors that it uses.
  tvm::ffi::Function instrumented_as_invoked(const tvm::ffi::Function& callback);

 private:
  struct Mapping;
  // A function with the tensors that a call of it reads.
  struct Entry {
    std::vector<tvm::runtime::Tensor> inputs;
    tvm::ffi::Function invoke;
  };

  const Entry& entry(const std::string& name, const std::vector<TensorInfo>& inputs);
  void make_state(const CheckedManifest& manifest);
  void map_parameters(const CheckedManifest& manifest, const std::string& directory, bool mapped);
  tvm::ffi::Module machine(const tvm::ffi::Module& library) const;
  tvm::ffi::Function instrumented(const tvm::ffi::Function& callback, const tvm::ffi::Module& library,
                                  const std::vector<tvm::ffi::Any>& between) const;
  // A function of the library, bound to its inputs, the states of the first texts, the weights and, where there are
  // any, the tensors between its kernels.
  tvm::ffi::Function closure(const tvm::ffi::Module& machine, const std::string& name,
                             const std::vector<tvm::runtime::Tensor>& inputs, size_t texts,
                             const std::vector<tvm::ffi::Any>& between) const;
  // The tensors between the kernels of a function, which all its calls use, one after the other; none where it makes
  // its own. What a function returns is never among them.
  const std::vector<tvm::ffi::Any>& tensors_between(const std::string& name);
  // Binds `main` to the inputs.
  void bind();
  // Records the graph of `main`, on a GPU, by two runs with inputs that are zeros. Models with state are left as they
  // are, since a run changes the state; so are ranges of lengths, whose graph is of one length. Their second run records.
  void record();
  // A tensor that the processor writes and the device reads.
  tvm::runtime::Tensor input(const std::vector<int64_t>& shape, const std::string& dtype) const;

  // Where it computes.
  DLDevice device_{kDLCPU, 0};
  // In the order in which they may be freed, last first.
  tvm::ffi::Optional<tvm::ffi::Module> library_;
  std::shared_ptr<Mapping> mapping_;
  std::shared_ptr<Pages> state_memory_;
  Signature signature_;
  std::vector<tvm::runtime::Tensor> parameters_;
  std::vector<tvm::runtime::Tensor> inputs_;
  // Kept from call to call: zeros at first, changed by every call. Those of the first text come first; main has them.
  std::vector<tvm::runtime::Tensor> state_;
  DecoderInfo decoder_;
  tvm::ffi::Optional<tvm::ffi::Module> machine_;
  // By the name of the function.
  std::map<std::string, std::vector<tvm::ffi::Any>> between_;
  tvm::ffi::Function invoke_;
  // Functions beside main that have been called.
  std::map<std::string, Entry> entries_;
  // On a GPU.
  std::unique_ptr<GraphedCall> graphed_;
  int64_t length_ = 0;
};

// A tensor of the runtime's allocator, contents undefined; AgentError where the dtype cannot travel.
tvm::runtime::Tensor empty_tensor(const std::vector<int64_t>& shape, const std::string& dtype);

}  // namespace edgetlm
