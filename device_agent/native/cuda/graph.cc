#include "cuda/graph.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/device_api.h>

#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cuda/driver.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr std::string_view kOfTheMachine = "vm.builtin.";
// Functions on the host that compute sizes from sizes; the compiler names them.
constexpr std::string_view kSizes = "shape_func";
// CU_STREAM_CAPTURE_MODE_RELAXED: memory may be allocated meanwhile.
constexpr int kRelaxed = 2;
// What a machine passes to an instrument: function, name, whether before the call, result, arguments.
constexpr int kInstrumentFields = 4;

// Of the machine's own calls, those that handle memory and shapes and never read or write the elements of a tensor of
// the GPU.
bool without_data(std::string_view name) {
  static const std::unordered_set<std::string_view> known{
      "alloc_shape_heap", "alloc_storage",      "alloc_tensor",     "check_func_info",    "check_prim_value_info",
      "check_shape_info", "check_string_info",  "check_tensor_info", "check_tuple_info",  "copy",
      "ensure_zero_offset", "invoke_closure",   "make_closure",     "make_prim_value",    "make_shape",
      "make_tuple",       "match_prim_value",   "match_shape",      "null_value",         "reshape",
      "shape_of",         "tuple_getitem",      "tuple_reset_item"};
  return name.starts_with(kOfTheMachine) && known.count(name.substr(kOfTheMachine.size())) > 0;
}

// Refuses a call that a graph would not repeat.
void check_repeatable(std::string_view name, ffi::PackedArgs arguments) {
  if (without_data(name) || name.starts_with(kSizes)) return;
  bool repeatable = !(name.starts_with("vm.") || name.starts_with("tvm.") || name.starts_with("runtime."));
  for (int i = 0; i < arguments.size(); ++i) {
    const auto tensor = arguments[i].as<ffi::Tensor>();
    if (tensor && tensor->GetDLTensorPtr()->device.device_type == kDLCPU) repeatable = false;
  }
  if (!repeatable) TVM_FFI_THROW(RuntimeError) << name << " runs on the processor";
}

// A stream that records what this thread starts on its device, until it is finished or left.
class Capture {
 public:
  Capture(DLDevice device, GraphMemory* memory) : device_(device), api_(tvm::runtime::DeviceAPI::Get(device)) {
    stream_ = api_->CreateStream(device_);
    before_ = api_->GetCurrentStream(device_);
    const int code = CudaDriver::get().cuStreamBeginCapture_v2(stream_, kRelaxed);
    if (code != 0) {
      CudaDriver::get().cuStreamDestroy_v2(stream_);
      cuda_check(code, "a graph is begun");
    }
    api_->SetStream(device_, stream_);
    GraphMemory::current() = memory;
  }
  Capture(const Capture&) = delete;
  ~Capture() {
    CudaHandle graph = nullptr;
    if (!finished_ && end(&graph) == 0 && graph != nullptr) CudaDriver::get().cuGraphDestroy(graph);
    CudaDriver::get().cuStreamDestroy_v2(stream_);
  }

  CudaHandle finish() {
    CudaHandle graph = nullptr;
    finished_ = true;
    cuda_check(end(&graph), "a graph is recorded");
    return graph;
  }

 private:
  int end(CudaHandle* graph) {
    GraphMemory::current() = nullptr;
    api_->SetStream(device_, before_);
    return CudaDriver::get().cuStreamEndCapture(stream_, graph);
  }

  const DLDevice device_;
  tvm::runtime::DeviceAPI* const api_;
  CudaHandle stream_ = nullptr;
  CudaHandle before_ = nullptr;
  bool finished_ = false;
};

}  // namespace

GraphMemory::~GraphMemory() {
  for (const Block& block : blocks_) tvm::runtime::DeviceAPI::Get(device_)->FreeDataSpace(device_, block.address);
}

GraphMemory*& GraphMemory::current() {
  static thread_local GraphMemory* recorded = nullptr;
  return recorded;
}

void* GraphMemory::take(size_t size) {
  Block* best = nullptr;
  for (Block& block : blocks_) {
    if (!block.taken && block.size >= size && (best == nullptr || block.size < best->size)) best = &block;
  }
  if (best == nullptr) {
    const DLDataType bytes{kDLUInt, 8, 1};
    void* address =
        tvm::runtime::DeviceAPI::Get(device_)->AllocDataSpace(device_, size, tvm::runtime::kTempAllocaAlignment, bytes);
    blocks_.push_back(Block{address, size, false});
    best = &blocks_.back();
  }
  best->taken = true;
  return best->address;
}

void GraphMemory::leave(void* address) {
  for (Block& block : blocks_) {
    if (block.address == address) block.taken = false;
  }
}

// A graph that can be started, with the memory that it works on.
struct GraphedCall::Graph {
  explicit Graph(DLDevice device) : scratch(device) {}
  ~Graph() {
    // Called from destructors: a context that is gone has freed it already.
    if (started != nullptr) CudaDriver::get().cuGraphExecDestroy(started);
  }

  GraphMemory scratch;
  CudaHandle started = nullptr;
  ffi::Any result;
  std::vector<ffi::Any> storage;
};

GraphedCall::GraphedCall(DLDevice device, ffi::Function plain, Instrumented instrumented)
    : device_(device), plain_(std::move(plain)), instrumented_(std::move(instrumented)) {}

GraphedCall::~GraphedCall() = default;

ffi::Any GraphedCall::operator()() {
  if (calls_ == 1) record();
  if (calls_ < 2) ++calls_;
  if (graph_ == nullptr) return plain_();
  cuda_enter(device_.device_id);
  // The default stream: after copies of inputs and before those of outputs.
  cuda_check(CudaDriver::get().cuGraphLaunch(graph_->started, nullptr), "the model's graph");
  return graph_->result;
}

std::string GraphedCall::launch() const {
  if (graph_ != nullptr) return "CUDA graph";
  return reason_.empty() ? "kernel by kernel" : "kernel by kernel: " + reason_;
}

void GraphedCall::record() {
  auto made = std::make_unique<Graph>(device_);
  const auto instrument = [&made](ffi::PackedArgs arguments, ffi::Any*) {
    const std::string name = arguments[1].cast<std::string>();
    if (arguments[2].cast<bool>()) {
      check_repeatable(name, arguments.Slice(kInstrumentFields));
    } else if (name == "vm.builtin.alloc_storage") {
      made->storage.push_back(ffi::Any(arguments[3]));
    }
  };
  try {
    const ffi::Function call = instrumented_(ffi::Function::FromPacked(instrument));
    CudaHandle recorded = nullptr;
    {
      Capture capture(device_, &made->scratch);
      made->result = call();
      recorded = capture.finish();
    }
    const int code = CudaDriver::get().cuGraphInstantiateWithFlags(&made->started, recorded, 0);
    CudaDriver::get().cuGraphDestroy(recorded);
    cuda_check(code, "a graph is made");
  } catch (const ffi::Error& error) {
    reason_ = error.message();
    return;
  }
  graph_ = std::move(made);
}

}  // namespace edgetlm
