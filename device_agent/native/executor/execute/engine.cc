#include "executor/execute/engine.h"

#include <string.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <set>

#include "executor/errors.h"
#include "executor/execute/kernel_times.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr size_t kMessageLength = 400;

// Appends a tensor's description and a copy of its bytes.
void append_copy(const ffi::Tensor& tensor, JsonArray* descriptions, std::vector<Blob>* blobs) {
  const DLTensor* view = tensor.GetDLTensorPtr();
  const std::vector<int64_t> shape(view->shape, view->shape + view->ndim);
  const std::string dtype(ffi::DLDataTypeToString(view->dtype));
  const size_t size = tensor_bytes(shape, dtype);
  std::shared_ptr<char[]> bytes(new char[size]);
  if (size > 0) tvm::runtime::Tensor::CopyToBytes(view, bytes.get(), size);
  descriptions->push_back(
      JsonObject{{ffi::String("shape"), json_of(shape)}, {ffi::String("dtype"), ffi::String(dtype)}});
  const char* begin = bytes.get();
  blobs->push_back(Blob{std::move(bytes), begin, size});
}

// One tensor, or a (possibly nested) tuple of them.
void append_result(const ffi::Any& result, JsonArray* descriptions, std::vector<Blob>* blobs) {
  if (const auto tensor = result.as<ffi::Tensor>()) {
    append_copy(*tensor, descriptions, blobs);
    return;
  }
  for (const ffi::Any& part : result.cast<ffi::Array<ffi::Any>>()) append_result(part, descriptions, blobs);
}

// Copies what kernels write in one inference.
//
// A kernel's outputs are those of its arguments that were allocated and not yet written to; one that has none
// works in place, on its last tensor.
class Recorder {
 public:
  Recorder(int64_t start, int64_t max_bytes) : start_(start), left_(max_bytes) {}

  void record(const std::string& name, const ffi::Any& result, ffi::PackedArgs arguments) {
    if (name.starts_with(kBuiltin)) {
      // A tensor within a block comes as two: the second begins where the data of the first does.
      const bool moved = name == "vm.builtin.ensure_zero_offset";
      if (moved) fresh_.erase(arguments[0].cast<ffi::Tensor>().GetDLTensorPtr());
      if (moved || name == "vm.builtin.alloc_tensor") {
        fresh_.insert(result.cast<ffi::Tensor>().GetDLTensorPtr());
      }
      return;
    }
    std::vector<ffi::Tensor> written = outputs(arguments);
    for (const ffi::Tensor& tensor : written) fresh_.erase(tensor.GetDLTensorPtr());
    const int64_t index = index_++;
    if (index < start_) return;
    if (left_ <= 0) {
      complete_ = false;
      return;
    }
    const size_t before = blobs_.size();
    for (const ffi::Tensor& tensor : written) append_copy(tensor, &tensors_, &blobs_);
    for (size_t i = before; i < blobs_.size(); ++i) left_ -= static_cast<int64_t>(blobs_[i].size);
    calls_.push_back(JsonObject{{ffi::String("index"), index},
                                {ffi::String("name"), ffi::String(name)},
                                {ffi::String("tensors"), static_cast<int64_t>(written.size())}});
  }

  Reply reply() {
    return Reply{JsonObject{{ffi::String("calls"), calls_},
                            {ffi::String("complete"), complete_},
                            {ffi::String("tensors"), tensors_}},
                 std::move(blobs_)};
  }

 private:
  std::vector<ffi::Tensor> outputs(ffi::PackedArgs arguments) const {
    std::vector<ffi::Tensor> all, fresh;
    for (int i = 0; i < arguments.size(); ++i) {
      if (const auto tensor = arguments[i].as<ffi::Tensor>()) {
        all.push_back(*tensor);
        if (fresh_.count(tensor->GetDLTensorPtr()) > 0) fresh.push_back(*tensor);
      }
    }
    if (fresh.empty() && !all.empty()) fresh.push_back(all.back());
    return fresh;
  }

  const int64_t start_;
  int64_t left_;
  int64_t index_ = 0;
  bool complete_ = true;
  JsonArray calls_;
  JsonArray tensors_;
  std::vector<Blob> blobs_;
  // Tensors that no kernel has written to.
  std::set<const DLTensor*> fresh_;
};

// What the virtual machine passes to an instrument: function, name, whether before the call, result, arguments.
constexpr int kInstrumentFields = 4;

}  // namespace

JsonObject Engine::load(const VerifiedBundle& bundle, int threads, bool mapped) {
  result_ = nullptr;
  model_.reset();
  try {
    model_ = std::make_unique<Model>(bundle, threads, mapped);
  } catch (const ffi::Error& error) {
    throw tvm_fails("tvm cannot load " + bundle.directory, error.message());
  }
  return model_->signature().json();
}

void Engine::bind(const std::vector<TensorView>& inputs) {
  const size_t expected = model_->signature().inputs.size();
  check_count(inputs.size(), expected);
  model_->set_length(model_->signature().length_of(inputs));
  for (size_t i = 0; i < expected; ++i) {
    tvm::runtime::Tensor tensor = model_->inputs()[i];
    if (inputs[i].size > 0) tensor.CopyFromBytes(inputs[i].data, inputs[i].size);
  }
}

Reply Engine::outputs() const {
  JsonArray tensors;
  Reply reply;
  append_result(result_, &tensors, &reply.blobs);
  reply.fields.Set(ffi::String("tensors"), tensors);
  return reply;
}

JsonArray Engine::profile(int64_t runs) {
  KernelTimes times(*model_);
  const ffi::Function invoke = model_->instrumented_as_invoked(times.instrument());
  invoke();
  times.take();
  for (int64_t i = 0; i < runs; ++i) invoke();
  JsonArray kernels;
  for (const auto& [name, total] : times.take()) {
    kernels.push_back(JsonObject{{ffi::String("name"), ffi::String(name)},
                                 {ffi::String("seconds"), total.seconds / static_cast<double>(runs)},
                                 {ffi::String("calls"), total.calls / runs}});
  }
  return kernels;
}

Reply Engine::intermediates(int64_t start, int64_t max_bytes) {
  Recorder recorder(start, max_bytes);
  const auto callback = [&](ffi::PackedArgs arguments, ffi::Any*) {
    if (!arguments[2].cast<bool>()) {
      recorder.record(arguments[1].cast<std::string>(), arguments[3], arguments.Slice(kInstrumentFields));
    }
  };
  model_->instrumented(ffi::Function::FromPacked(callback))();
  return recorder.reply();
}

AgentError tvm_fails(const std::string& action, std::string_view message) {
  return AgentError("engine", action + ": " + one_line(message).substr(0, kMessageLength));
}

}  // namespace edgetlm
