#include "executor/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/runtime/device_api.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "cuda/driver.h"
#include "executor/errors.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr char kBundleSchema[] = "edgetlm.bundle/1";
constexpr size_t kParameterAlignment = 64;
constexpr DLDevice kCpu{kDLCPU, 0};

[[noreturn]] void broken(const std::string& message) { throw AgentError("bundle", message); }

JsonObject read_manifest(const std::string& directory) {
  const std::string path = directory + "/manifest.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT) broken(directory + " is not a bundle: it has no manifest.json");
    broken(path + " cannot be read: " + strerror(errno) + "; build the bundle again");
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Json value;
  try {
    value = parse_json(text);
  } catch (const std::invalid_argument& error) {
    broken(path + " cannot be read: " + error.what() + "; build the bundle again");
  }
  const auto manifest = value.as<JsonObject>();
  const Json schema = manifest ? find(*manifest, "schema") : Json(nullptr);
  if (schema.as<ffi::String>().value_or("") != kBundleSchema) {
    const auto text = schema.as<ffi::String>();
    const std::string found = text ? std::string(*text) : schema == nullptr ? "None" : json_text(schema);
    broken(path + " has schema " + found + ", this runtime reads " + kBundleSchema);
  }
  return *manifest;
}

std::vector<TensorInfo> infos_of(const Json& entries) {
  std::vector<TensorInfo> infos;
  for (const Json& value : array_of(entries)) {
    const JsonObject entry = object_of(value);
    TensorInfo info{text_of(at(entry, "name")), integers_of(at(entry, "shape")), text_of(at(entry, "dtype")), {}};
    const Json open = find(entry, "open");
    if (open != nullptr) info.open = integers_of(open);
    for (const int64_t axis : info.open) {
      if (axis < 0 || axis >= static_cast<int64_t>(info.shape.size())) throw FieldError("ValueError('open')");
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

Signature signature_of(const JsonObject& manifest, const std::string& directory) {
  try {
    const JsonObject fields = object_of(at(manifest, "signature"));
    Signature signature{infos_of(at(fields, "inputs")), infos_of(at(fields, "outputs")), {}};
    const Json part = find(fields, "length");
    if (part != nullptr) {
      const JsonObject range = object_of(part);
      signature.range = {text_of(at(range, "name")), integer_of(at(range, "low")), integer_of(at(range, "high"))};
    }
    return signature;
  } catch (const FieldError& error) {
    broken("manifest.json in " + directory + " has no valid signature: " + error.what());
  }
}

// The device that a bundle is for: the GPU where its target says so.
DLDevice device_of(const JsonObject& manifest) {
  const Json target = find(manifest, "target");
  const auto fields = target.as<JsonObject>();
  const Json kind = fields ? find(*fields, "kind") : Json(nullptr);
  if (kind.as<ffi::String>().value_or("") != "cuda") return kCpu;
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

// The weights' file: pages are shared with the page cache and read when first used.
struct Model::Mapping {
  Mapping(const std::string& path) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (file.number() < 0 || fstat(file.number(), &status) != 0) {
      broken(path + " cannot be mapped: " + strerror(errno));
    }
    if (status.st_size == 0) broken(path + " cannot be mapped: it is empty");
    size = static_cast<size_t>(status.st_size);
    void* begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.number(), 0);
    if (begin == MAP_FAILED) broken(path + " cannot be mapped: " + strerror(errno));
    address = static_cast<char*>(begin);
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() { munmap(address, size); }

  char* address = nullptr;
  size_t size = 0;
};

Model::Model(const std::string& directory, int threads) {
  const JsonObject manifest = read_manifest(directory);
  signature_ = signature_of(manifest, directory);
  const Json model = find(manifest, "model");
  const std::string name = model == nullptr ? "lib.so" : text_of(model), file = directory + "/" + name;
  struct stat status{};
  if (stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    broken(directory + " is missing its model file " + name.substr(name.rfind('/') + 1));
  }
  const Json backend = find(manifest, "backend");
  if (backend.as<ffi::String>().value_or("") != "tvm") {
    const std::string found = backend == nullptr ? "None" : text_of(backend);
    throw AgentError("bad_request", directory + " is a bundle of backend " + found + ", not tvm");
  }
  // Read by TVM when its thread pool starts, at the first parallel loop.
  setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 0);
  device_ = device_of(manifest);
  map_parameters(manifest, directory + "/params.bin");
  for (const TensorInfo& info : signature_.inputs) inputs_.push_back(empty_input(info.shape, info.dtype));
  library_ = ffi::Module::LoadFromFile(file);
  machine_ = machine();
  invoke_ = bound(*machine_);
}

void Model::map_parameters(const JsonObject& manifest, const std::string& path) {
  const Json entries = find(manifest, "parameters");
  if (entries == nullptr || array_of(entries).empty()) return;
  mapping_ = std::make_shared<Mapping>(path);
  int index = 0;
  for (const Json& value : array_of(entries)) {
    const JsonObject entry = object_of(value);
    const std::vector<int64_t> shape = integers_of(at(entry, "shape"));
    const std::string dtype = text_of(at(entry, "dtype"));
    const int64_t offset = integer_of(at(entry, "offset"));
    const size_t start = static_cast<size_t>(offset), bytes = tensor_bytes(shape, dtype);
    if (offset < 0 || start % kParameterAlignment != 0 || start > mapping_->size ||
        bytes > mapping_->size - start) {
      broken("parameter " + std::to_string(index) + " at offset " + std::to_string(offset) + " does not fit " +
             path);
    }
    parameters_.push_back(tvm::runtime::Tensor(ffi::Tensor::FromNDAlloc(
        Borrowed{mapping_->address + start}, ffi::Shape(shape), ffi::StringToDLDataType(dtype), kCpu)));
    if (device_.device_type != kDLCPU) {
      const tvm::runtime::Tensor host = parameters_.back();
      parameters_.back() = tvm::runtime::Tensor::Empty(ffi::Shape(shape), host->dtype, device_);
      parameters_.back().CopyFrom(host);
      synchronise();
    }
    ++index;
  }
  // A GPU has its own copies by now.
  if (device_.device_type != kDLCPU) mapping_.reset();
}

ffi::Module Model::machine() const {
  ffi::Optional<ffi::Function> load = (*library_)->GetFunction("vm_load_executable", true);
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

ffi::Function Model::bound(const ffi::Module& machine) const {
  // A saved closure binds the arguments once: a call then passes none of the hundreds of weights.
  std::vector<ffi::AnyView> arguments{"main", "edgetlm_main", 1};
  for (const tvm::runtime::Tensor& tensor : inputs_) arguments.push_back(tensor);
  for (const tvm::runtime::Tensor& tensor : parameters_) arguments.push_back(tensor);
  ffi::Any nothing;
  machine->GetFunction("save_function").value().CallPacked(arguments.data(), arguments.size(), &nothing);
  return machine->GetFunction("edgetlm_main").value();
}

void Model::set_length(int64_t length) {
  if (length == length_) return;
  inputs_.clear();
  for (const TensorInfo& info : signature_.inputs) {
    inputs_.push_back(empty_input(info.shape_at(length), info.dtype));
  }
  invoke_ = bound(*machine_);
  length_ = length;
}

tvm::runtime::Tensor Model::empty_input(const std::vector<int64_t>& shape, const std::string& dtype) const {
  tensor_bytes(shape, dtype);
  return tvm::runtime::Tensor::Empty(ffi::Shape(shape), ffi::StringToDLDataType(dtype), device_);
}

void Model::synchronise() const {
  if (device_.device_type != kDLCPU) tvm::runtime::DeviceAPI::Get(device_)->StreamSync(device_, nullptr);
}

ffi::Function Model::instrumented(const ffi::Function& callback) const {
  // A machine of its own: an instrument cannot be taken off again.
  const ffi::Module other = machine();
  const ffi::Function invoke = bound(other);
  other->GetFunction("set_instrument").value()(callback);
  return invoke;
}

tvm::runtime::Tensor empty_tensor(const std::vector<int64_t>& shape, const std::string& dtype) {
  tensor_bytes(shape, dtype);
  return tvm::runtime::Tensor::Empty(ffi::Shape(shape), ffi::StringToDLDataType(dtype), kCpu);
}

}  // namespace edgetlm
