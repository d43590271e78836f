#include "cuda/driver.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <map>
#include <mutex>
#include <string>

namespace edgetlm {
namespace {

struct Found {
  CudaDriver driver;
  std::string missing;

  Found() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      missing = "no NVIDIA driver on this machine (libcuda.so.1)";
      return;
    }
#define EDGETLM_LOAD(name, parameters)                                              \
  driver.name = reinterpret_cast<int(*) parameters>(dlsym(library, #name));         \
  if (driver.name == nullptr) missing = "the NVIDIA driver has no function " #name;
    EDGETLM_CUDA_DRIVER(EDGETLM_LOAD)
#undef EDGETLM_LOAD
    if (!missing.empty()) return;
    const int code = driver.cuInit(0);
    if (code != 0) missing = "the NVIDIA driver does not start (error " + std::to_string(code) + ")";
  }
};

const Found& found() {
  static const Found* const instance = new Found();
  return *instance;
}

}  // namespace

const CudaDriver& CudaDriver::get() {
  if (!found().missing.empty()) TVM_FFI_THROW(RuntimeError) << found().missing;
  return found().driver;
}

const char* CudaDriver::missing() { return found().missing.c_str(); }

void cuda_check(int code, const char* what) {
  if (code == 0) return;
  const char *name = nullptr, *text = nullptr;
  CudaDriver::get().cuGetErrorName(code, &name);
  CudaDriver::get().cuGetErrorString(code, &text);
  TVM_FFI_THROW(RuntimeError) << "CUDA: " << what << ": " << (name ? name : "unknown error") << " ("
                              << (text ? text : std::to_string(code)) << ")";
}

void cuda_enter(int device) {
  static std::mutex lock;
  static std::map<int, CudaHandle>* const contexts = new std::map<int, CudaHandle>();
  thread_local int entered = -1;
  if (entered == device) return;
  const CudaDriver& driver = CudaDriver::get();
  CudaHandle context = nullptr;
  {
    const std::lock_guard<std::mutex> guard(lock);
    CudaHandle& kept = (*contexts)[device];
    if (kept == nullptr) {
      int handle = 0;
      cuda_check(driver.cuDeviceGet(&handle, device), "device");
      cuda_check(driver.cuDevicePrimaryCtxRetain(&kept, handle), "context");
    }
    context = kept;
  }
  cuda_check(driver.cuCtxSetCurrent(context), "context");
  entered = device;
}

}  // namespace edgetlm
