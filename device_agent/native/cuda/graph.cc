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
// Those that allocate memory.
constexpr std::string_view kStorage = "vm.builtin.alloc_storage", kTensor = "vm.builtin.edgetlm_tensor";
// Functions on the host that compute sizes from sizes; the compiler names them.
constexpr std::string_view kSizes = "shape_func";
// Hands a tensor from GPU to CPU or back; the compiler puts it where a function of the other one reads.
constexpr std::string_view kCross = "edgetlm.cross";
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
      "edgetlm_beside",   "edgetlm_tensor",     "ensure_zero_offset", "invoke_closure",   "make_closure",     "make_prim_value",    "make_shape",
      "make_tuple",       "match_prim_value",   "match_shape",      "null_value",         "reshape",
      "shape_of",         "tuple_getitem",      "tuple_reset_item"};
  return name.starts_with(kOfTheMachine) && known.count(name.substr(kOfTheMachine.size())) > 0;
}

// Whether a call starts work on the GPU; false where it is one of the CPU, which is repeated between two graphs.
// Throws where it cannot be repeated.
bool starts_on_gpu(std::string_view name, ffi::PackedArgs arguments) {
  if (name == kCross) return false;
  if (name.starts_with("vm.") || name.starts_with("tvm.") || name.starts_with("runtime.")) {
    TVM_FFI_THROW(RuntimeError) << name << " runs on the processor";
  }
  for (int i = 0; i < arguments.size(); ++i) {
    const auto tensor = arguments[i].as<ffi::Tensor>();
    if (tensor && tensor->GetDLTensorPtr()->device.device_type == kDLCPU) return false;
  }
  return true;
}

// A stream that records what this thread starts on its device, until it is ended or left.
class Capture {
 public:
  Capture(DLDevice device, GraphMemory* memory)
      : device_(device), api_(tvm::runtime::DeviceAPI::Get(device)), memory_(memory) {
    stream_ = api_->CreateStream(device_);
    before_ = api_->GetCurrentStream(device_);
  }
  Capture(const Capture&) = delete;
  ~Capture() {
    CudaHandle graph = nullptr;
    if (recording_ && end(&graph) == 0 && graph != nullptr) CudaDriver::get().cuGraphDestroy(graph);
    CudaDriver::get().cuStreamDestroy_v2(stream_);
  }

  // Records from here on, if it does not yet.
  void begin() {
    if (recording_) return;
    cuda_check(CudaDriver::get().cuStreamBeginCapture_v2(stream_, kRelaxed), "a graph is begun");
    api_->SetStream(device_, stream_);
    GraphMemory::current() = memory_;
    recording_ = true;
  }

  // What was recorded, as a graph that can be started; null where nothing is being recorded.
  CudaHandle finish() {
    if (!recording_) return nullptr;
    CudaHandle graph = nullptr, started = nullptr;
    cuda_check(end(&graph), "a graph is recorded");
    const int code = CudaDriver::get().cuGraphInstantiateWithFlags(&started, graph, 0);
    CudaDriver::get().cuGraphDestroy(graph);
    cuda_check(code, "a graph is made");
    return started;
  }

 private:
  int end(CudaHandle* graph) {
    recording_ = false;
    GraphMemory::current() = nullptr;
    api_->SetStream(device_, before_);
    return CudaDriver::get().cuStreamEndCapture(stream_, graph);
  }

  const DLDevice device_;
  tvm::runtime::DeviceAPI* const api_;
  GraphMemory* const memory_;
  CudaHandle stream_ = nullptr;
  CudaHandle before_ = nullptr;
  bool recording_ = false;
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

// A graph, or a call of the CPU.
struct Step {
  void operator()() const {
    if (graph != nullptr) {
      // The default stream: after copies of inputs and before those of outputs.
      return cuda_check(CudaDriver::get().cuGraphLaunch(graph, nullptr), "the model's graph");
    }
    std::vector<ffi::AnyView> views(arguments.begin(), arguments.end());
    ffi::Any nothing;
    function.CallPacked(views.data(), static_cast<int32_t>(views.size()), &nothing);
  }

  CudaHandle graph = nullptr;
  ffi::Function function;
  std::vector<ffi::Any> arguments;
};

// The steps of a run, with the memory that they work on.
struct GraphedCall::Graph {
  explicit Graph(DLDevice device) : scratch(device) {}
  ~Graph() {
    // Called from destructors: a context that is gone has freed them already.
    for (const Step& step : steps) {
      if (step.graph != nullptr) CudaDriver::get().cuGraphExecDestroy(step.graph);
    }
  }

  // Adds what was recorded, and starts it: a call of the CPU reads what it has computed.
  void finish(Capture* capture) {
    const CudaHandle started = capture->finish();
    if (started == nullptr) return;
    if (kernels == 0) {
      CudaDriver::get().cuGraphExecDestroy(started);
      return;
    }
    kernels = 0;
    steps.push_back(Step{started, {}, {}});
    steps.back()();
  }

  GraphMemory scratch;
  std::vector<Step> steps;
  // Started since the last graph was made.
  int kernels = 0;
  ffi::Any result;
  std::vector<ffi::Any> storage;
};

GraphedCall::GraphedCall(DLDevice device, ffi::Function plain, Instrumented instrumented)
    : device_(device), plain_(std::move(plain)), instrumented_(std::move(instrumented)) {}

GraphedCall::~GraphedCall() = default;

ffi::Any GraphedCall::operator()() {
  const bool records = calls_ == 1;
  if (records) record();
  if (calls_ < 2) ++calls_;
  if (graph_ == nullptr) return plain_();
  // What is recorded has been run by that.
  if (records) return graph_->result;
  cuda_enter(device_.device_id);
  for (const Step& step : graph_->steps) step();
  return graph_->result;
}

std::string GraphedCall::launch() const {
  if (graph_ == nullptr) return reason_.empty() ? "kernel by kernel" : "kernel by kernel: " + reason_;
  size_t graphs = 0;
  for (const Step& step : graph_->steps) graphs += step.graph != nullptr;
  if (graphs == graph_->steps.size()) return "CUDA graph";
  return "CUDA graphs: " + std::to_string(graphs) + ", around " + std::to_string(graph_->steps.size() - graphs) +
         " calls and copies of the CPU";
}

void GraphedCall::record() {
  auto made = std::make_unique<Graph>(device_);
  try {
    Capture capture(device_, &made->scratch);
    const auto instrument = [&made, &capture](ffi::PackedArgs arguments, ffi::Any*) {
      const std::string name = arguments[1].cast<std::string>();
      const bool before = arguments[2].cast<bool>();
      if (without_data(name) || name.starts_with(kSizes)) {
        if (!before && (name == kStorage || name == kTensor)) made->storage.push_back(ffi::Any(arguments[3]));
        return;
      }
      if (!before) return capture.begin();
      const ffi::PackedArgs given = arguments.Slice(kInstrumentFields);
      if (starts_on_gpu(name, given)) {
        ++made->kernels;
        return;
      }
      made->finish(&capture);
      Step step{nullptr, arguments[0].cast<ffi::Function>(), {}};
      for (int i = 0; i < given.size(); ++i) step.arguments.emplace_back(given[i]);
      made->steps.push_back(std::move(step));
    };
    const ffi::Function call = instrumented_(ffi::Function::FromPacked(instrument));
    capture.begin();
    made->result = call();
    made->finish(&capture);
  } catch (const ffi::Error& error) {
    reason_ = error.message();
    return;
  }
  graph_ = std::move(made);
}

}  // namespace edgetlm
