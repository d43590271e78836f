#include "executor/execute/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/runtime/device_api.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "contract/free_memory.h"
#include "contract/pages.h"
#include "contract/protocol.h"
#include "contract/text/text.h"
#include "cuda/driver.h"
#include "cuda/shared_memory.h"
#include "cuda/side_by_side.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr DLDevice kCpu{kDLCPU, 0};
// Places of state tensors: multiples of a line of the caches, and of any vector.
constexpr size_t kAligned = 64;
// Begin the names of functions of a library beside each function of a model that has fixed sizes, on a CPU: one makes
// the tensors between its kernels, and one takes them behind the parameters instead of making them in every call.
constexpr char kTensorsOf[] = "edgetlm_tensors_";
constexpr char kLent[] = "edgetlm_lent_";

[[noreturn]] void broken(const std::string& message) { throw AgentError("bundle", message); }

// The device that a bundle is for: the GPU where its target says so.
DLDevice device_of(const CheckedManifest& manifest) {
  if (manifest.target_kind != "cuda") return kCpu;
  const DLDevice device{kDLCUDA, 0};
  ffi::Any there = 0;
  tvm::runtime::DeviceAPI* api = tvm::runtime::DeviceAPI::Get(device, true);
  if (api != nullptr) api->GetAttr(device, tvm::runtime::kExist, &there);
  if (there.cast<int>() == 0) {
    const std::string reason = CudaDriver::missing();
    throw AgentError("engine", (reason.empty() ? "the driver finds no CUDA GPU" : reason) +
                                   "; deploy with --processor cpu");
  }
  return device;
}

// Memory that somebody else owns, as a tensor's.
struct Borrowed {
  char* address;
  void AllocData(DLTensor* tensor) { tensor->data = address; }
  void FreeData(DLTensor*) {}
};

}  // namespace

// The weights. Pages of their file are shared with the page cache and read when first used; those of a language model,
// which reads all of them for every token, are copied to huge pages where the system has these and the memory.
struct Model::Mapping {
  Mapping(const std::string& path, int64_t expected, bool streamed) : size(static_cast<size_t>(expected)) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (file.number() < 0 || fstat(file.number(), &status) != 0) {
      broken(path + " cannot be mapped: " + strerror(errno));
    }
    // Its pages are read when they are used, long after it was verified.
    if (status.st_size != expected) broken(path + " has changed: copy or make the bundle again");
    if (streamed && has_huge_pages() && has_room(size)) {
      copied = std::make_unique<Pages>(size);
      if (!copied->fill(file.number(), size)) broken(path + " cannot be read: " + strerror(errno));
      address = copied->begin();
      return;
    }
    void* begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.number(), 0);
    if (begin == MAP_FAILED) broken(path + " cannot be mapped: " + strerror(errno));
    address = static_cast<char*>(begin);
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    if (copied == nullptr) munmap(address, size);
  }

  const size_t size;
  char* address = nullptr;
  std::unique_ptr<Pages> copied;
};

Model::Model(const VerifiedBundle& bundle, int threads, bool mapped) {
  const CheckedManifest& manifest = bundle.manifest;
  if (manifest.backend != "tvm") {
    throw AgentError("bad_request", bundle.directory + " is a bundle of backend " + manifest.backend + ", not tvm");
  }
  device_ = device_of(manifest);
  try {
    // A GPU with memory of its own takes nothing of this machine's.
    if (device_.device_type == kDLCPU || shares_host_memory(device_)) require_free(manifest);
  } catch (const ContractError& error) {
    broken(bundle.directory + ": " + error.what());
  }
  signature_ = {manifest.inputs, manifest.outputs, manifest.range};
  decoder_ = manifest.decoder;
  // Read by TVM when its thread pool starts, at the first parallel loop.
  setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 0);
  map_parameters(manifest, bundle.directory, mapped);
  for (const TensorInfo& info : signature_.inputs) inputs_.push_back(input(info.shape, info.dtype));
  make_state(manifest);
  library_ = ffi::Module::LoadFromFile(bundle.directory + "/" + manifest.model);
  machine_ = machine(*library_);
  bind();
  record();
}

void Model::record() {
  const bool any_length = !signature_.range.name.empty();
  if (device_.device_type == kDLCPU || !state_.empty() || any_length) return;
  for (tvm::runtime::Tensor& tensor : inputs_) {
    const std::string zeros(tvm::ffi::GetDataSize(*tensor.operator->()), '\0');
    if (!zeros.empty()) tensor.CopyFromBytes(zeros.data(), zeros.size());
  }
  for (int run = 0; run < 2; ++run) invoke();
}

void Model::bind() {
  // The graph of other inputs goes first: it has their addresses.
  graphed_.reset();
  invoke_ = closure(*machine_, "main", inputs_, 1, tensors_between("main"));
  if (device_.device_type == kDLCPU) return;
  graphed_ = std::make_unique<GraphedCall>(
      device_, invoke_, [this](const ffi::Function& instrument) { return instrumented(instrument); });
}

void Model::make_state(const CheckedManifest& manifest) {
  const size_t count = manifest.state.size() * static_cast<size_t>(manifest.decoder.sequences);
  std::vector<size_t> places{0};
  for (size_t number = 0; number < count; ++number) {
    const TensorInfo& info = manifest.state[number % manifest.state.size()];
    places.push_back(places.back() + (tensor_bytes(info.shape, info.dtype) + kAligned - 1) / kAligned * kAligned);
  }
  if (count == 0) return;
  // Zeros; on a GPU until they are copied.
  state_memory_ = std::make_shared<Pages>(places.back());
  for (size_t number = 0; number < count; ++number) {
    const TensorInfo& info = manifest.state[number % manifest.state.size()];
    state_.push_back(tvm::runtime::Tensor(ffi::Tensor::FromNDAlloc(Borrowed{state_memory_->begin() + places[number]},
                                                                   ffi::Shape(info.shape),
                                                                   ffi::StringToDLDataType(info.dtype), kCpu)));
  }
  if (device_.device_type == kDLCPU) return;
  state_ = copied_side_by_side(state_, device_);
  state_memory_.reset();
}

void Model::map_parameters(const CheckedManifest& manifest, const std::string& directory, bool mapped) {
  if (manifest.parameters.empty()) return;
  const int64_t size = manifest.files.at(protocol::bundle::parameters).size;
  // No memory is mapped where all parameters are empty.
  const bool once = manifest.streamed || manifest.decoder.context > 0;
  const bool streamed = once && device_.device_type == kDLCPU && !mapped;
  if (size > 0) mapping_ = std::make_shared<Mapping>(directory + "/" + protocol::bundle::parameters, size, streamed);
  for (const Parameter& entry : manifest.parameters) {
    // It fits the file, whose size is that of the mapping: the manifest was checked.
    char* address = mapping_ == nullptr ? nullptr : mapping_->address + entry.offset;
    parameters_.push_back(tvm::runtime::Tensor(ffi::Tensor::FromNDAlloc(
        Borrowed{address}, ffi::Shape(entry.shape), ffi::StringToDLDataType(entry.dtype), kCpu)));
  }
  if (device_.device_type == kDLCPU) return;
  parameters_ = copied_side_by_side(parameters_, device_);
  mapping_.reset();
}

ffi::Module Model::machine(const ffi::Module& library) const {
  ffi::Optional<ffi::Function> load = library->GetFunction("vm_load_executable", true);
  if (!load) throw AgentError("engine", "the library holds no program of the virtual machine");
  const ffi::Module machine = (*load)().cast<ffi::Module>();
  // Allocator 2 is the pooled one; the CPU is always the last device.
  const ffi::Function initialise = machine->GetFunction("vm_initialization").value();
  if (device_.device_type == kDLCPU) {
    initialise(static_cast<int>(kDLCPU), 0, 2);
  } else {
    initialise(static_cast<int>(device_.device_type), device_.device_id, 2, static_cast<int>(kDLCPU), 0, 2);
  }
  return machine;
}

ffi::Function Model::closure(const ffi::Module& machine, const std::string& name,
                             const std::vector<tvm::runtime::Tensor>& inputs, size_t texts,
                             const std::vector<ffi::Any>& between) const {
  // A saved closure binds the arguments once: a call then passes none of the hundreds of weights.
  const std::string saved = "edgetlm_" + name;
  const std::string function = between.empty() ? name : kLent + name;
  const size_t each = state_.size() / static_cast<size_t>(decoder_.sequences);
  std::vector<ffi::AnyView> arguments{function.c_str(), saved.c_str(), 1};
  for (const tvm::runtime::Tensor& tensor : inputs) arguments.push_back(tensor);
  for (size_t place = 0; place < texts * each; ++place) arguments.push_back(state_[place]);
  for (const tvm::runtime::Tensor& tensor : parameters_) arguments.push_back(tensor);
  for (const ffi::Any& tensor : between) arguments.push_back(tensor);
  ffi::Any nothing;
  machine->GetFunction("save_function").value().CallPacked(arguments.data(), arguments.size(), &nothing);
  return machine->GetFunction(saved).value();
}

const std::vector<ffi::Any>& Model::tensors_between(const std::string& name) {
  const auto found = between_.find(name);
  if (found != between_.end()) return found->second;
  std::vector<ffi::Any> tensors;
  if (device_.device_type == kDLCPU) {
    if (const ffi::Optional<ffi::Function> make = (*machine_)->GetFunction(kTensorsOf + name)) {
      for (const ffi::Any& tensor : (*make)().cast<ffi::Array<ffi::Any>>()) tensors.push_back(tensor);
    }
  }
  return between_.emplace(name, std::move(tensors)).first->second;
}

ffi::Any Model::call(const std::string& name, const std::vector<TensorView>& inputs) {
  const Signature taken{inputs_of(decoder_, name), {}, {}};
  if (taken.inputs.empty()) throw AgentError("bad_request", "the loaded model has no function " + printable(name));
  check_count(inputs.size(), taken.inputs.size());
  taken.length_of(inputs);
  const Entry& entry = this->entry(name, taken.inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    tvm::runtime::Tensor tensor = entry.inputs[i];
    tensor.CopyFromBytes(inputs[i].data, inputs[i].size);
  }
  ffi::Any result = entry.invoke();
  synchronise();
  return result;
}

const Model::Entry& Model::entry(const std::string& name, const std::vector<TensorInfo>& inputs) {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  Entry entry;
  for (const TensorInfo& info : inputs) entry.inputs.push_back(input(info.shape, info.dtype));
  const int64_t texts = name == "together" ? decoder_.sequences : 1;
  entry.invoke = closure(*machine_, name, entry.inputs, static_cast<size_t>(texts), tensors_between(name));
  return entries_.emplace(name, std::move(entry)).first->second;
}

void Model::set_length(int64_t length) {
  if (length == length_) return;
  inputs_.clear();
  for (const TensorInfo& info : signature_.inputs) {
    inputs_.push_back(input(shape_at(info, length), info.dtype));
  }
  bind();
  length_ = length;
}

tvm::runtime::Tensor Model::input(const std::vector<int64_t>& shape, const std::string& dtype) const {
  if (device_.device_type == kDLCPU) return empty_tensor(shape, dtype);
  tensor_bytes(shape, dtype);
  return shared_tensor(ffi::Shape(shape), ffi::StringToDLDataType(dtype), device_);
}

void Model::synchronise() const {
  if (device_.device_type != kDLCPU) tvm::runtime::DeviceAPI::Get(device_)->StreamSync(device_, nullptr);
}

ffi::Function Model::instrumented(const ffi::Function& callback, const ffi::Optional<ffi::Module>& library) const {
  return instrumented(callback, library ? *library : *library_, {});
}

ffi::Function Model::instrumented_as_invoked(const ffi::Function& callback) {
  return instrumented(callback, *library_, tensors_between("main"));
}

ffi::Function Model::instrumented(const ffi::Function& callback, const ffi::Module& library,
                                  const std::vector<ffi::Any>& between) const {
  // A machine of its own: an instrument cannot be taken off again.
  const ffi::Module other = machine(library);
  const ffi::Function invoke = closure(other, "main", inputs_, 1, between);
  other->GetFunction("set_instrument").value()(callback);
  return invoke;
}

tvm::runtime::Tensor empty_tensor(const std::vector<int64_t>& shape, const std::string& dtype) {
  tensor_bytes(shape, dtype);
  return tvm::runtime::Tensor::Empty(ffi::Shape(shape), ffi::StringToDLDataType(dtype), kCpu);
}

}  // namespace edgetlm
