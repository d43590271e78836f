// Cubins of a bundle's library: loaded for a GPU when one of their kernels is first called there.
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/driver.h"
#include "runtime/metadata.h"
#include "runtime/pack_args.h"
#include "runtime/thread_storage_scope.h"
#include "support/bytes_io.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::FunctionInfo;

// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, which a kernel has to ask for above 48 KiB.
constexpr int kDynamicSharedBytes = 8;
constexpr size_t kUsualSharedBytes = 48 << 10;

// A cubin and what of it is loaded where.
class Image {
 public:
  explicit Image(std::string content) : content_(std::move(content)) {}
  ~Image() {
    for (const auto& [device, module] : modules_) {
      try {
        cuda_enter(device);
        CudaDriver::get().cuModuleUnload(module);
      } catch (const ffi::Error&) {
        // The driver is shutting down with the process.
      }
    }
  }

  // The kernel on the device that this thread works with.
  CudaHandle kernel(int device, const std::string& name) {
    const std::lock_guard<std::mutex> guard(lock_);
    CudaHandle& module = modules_[device];
    if (module == nullptr) {
      cuda_check(CudaDriver::get().cuModuleLoadData(&module, content_.data()),
                 "the bundle's programs do not load; deploy the model again for the CUDA of this board");
    }
    CudaHandle& function = functions_[{device, name}];
    if (function == nullptr) {
      cuda_check(CudaDriver::get().cuModuleGetFunction(&function, module, name.c_str()), name.c_str());
    }
    return function;
  }

 private:
  const std::string content_;
  std::mutex lock_;
  std::map<int, CudaHandle> modules_;
  std::map<std::pair<int, std::string>, CudaHandle> functions_;
};

// Starts one kernel.
class Launcher {
 public:
  Launcher(std::shared_ptr<Image> image, const FunctionInfo& info) : image_(std::move(image)), name_(info->name) {
    config_.Init(info->arg_types.size(), info->launch_param_tags);
  }

  void operator()(ffi::PackedArgs arguments, ffi::Any*, void** addresses) const {
    // Host code has set the device before: `__tvm_set_device` stands in front of every launch.
    const DLDevice device{kDLCUDA, 0};
    cuda_enter(device.device_id);
    const CudaHandle function = image_->kernel(device.device_id, name_);
    const tvm::runtime::ThreadWorkLoad load = config_.Extract(arguments);
    const CudaDriver& driver = CudaDriver::get();
    if (load.dyn_shmem_size > kUsualSharedBytes) {
      const int bytes = static_cast<int>(load.dyn_shmem_size);
      cuda_check(driver.cuFuncSetAttribute(function, kDynamicSharedBytes, bytes), name_.c_str());
    }
    const auto size = [](size_t value) { return static_cast<unsigned>(value); };
    const CudaHandle stream = tvm::runtime::DeviceAPI::Get(device)->GetCurrentStream(device);
    cuda_check(driver.cuLaunchKernel(function, size(load.grid_dim(0)), size(load.grid_dim(1)),
                                     size(load.grid_dim(2)), size(load.block_dim(0)), size(load.block_dim(1)),
                                     size(load.block_dim(2)), size(load.dyn_shmem_size), stream, addresses,
                                     nullptr),
               name_.c_str());
  }

 private:
  std::shared_ptr<Image> image_;
  std::string name_;
  tvm::runtime::LaunchParamConfig config_;
};

class CudaModule final : public ffi::ModuleObj {
 public:
  CudaModule(std::string content, ffi::Map<ffi::String, FunctionInfo> functions)
      : image_(std::make_shared<Image>(std::move(content))), functions_(std::move(functions)) {}

  const char* kind() const final { return "cuda"; }
  int GetPropertyMask() const final { return ffi::Module::kRunnable; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    const auto found = functions_.find(name);
    if (found == functions_.end()) return std::nullopt;
    const FunctionInfo info = (*found).second;
    return tvm::runtime::PackFuncVoidAddr(Launcher(image_, info), info->arg_types, info->arg_extra_tags);
  }

 private:
  std::shared_ptr<Image> image_;
  ffi::Map<ffi::String, FunctionInfo> functions_;
};

// What the compiler on the host wrote: the kind of code, what each kernel takes, and the code.
ffi::Module load(const ffi::Bytes& bytes) {
  tvm::support::BytesInStream stream(bytes);
  std::string kind, name, content;
  uint64_t count = 0;
  ffi::Map<ffi::String, FunctionInfo> functions;
  bool whole = stream.Read(&kind) && stream.Read(&count);
  for (uint64_t i = 0; whole && i < count; ++i) {
    FunctionInfo info;
    whole = stream.Read(&name) && stream.Read(&info);
    if (whole) functions.Set(ffi::String(name), info);
  }
  whole = whole && stream.Read(&content);
  if (!whole || kind != "cubin") {
    TVM_FFI_THROW(ValueError) << "the bundle's programs for the GPU are damaged; deploy the model again";
  }
  return ffi::Module(ffi::make_object<CudaModule>(std::move(content), std::move(functions)));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.cuda", load);
}

}  // namespace
}  // namespace edgetlm
