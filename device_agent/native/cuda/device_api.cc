// The device "cuda" of TVM's runtime, over the driver; the wheels leave its source out.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/timer.h>

#include <cstring>

#include "cuda/driver.h"
#include "cuda/graph.h"
#include "cuda/shared_memory.h"
#include "runtime/workspace_pool.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;
using tvm::Device;
using tvm::runtime::DeviceAPI;
using tvm::runtime::DeviceAttrKind;

// Numbers of CUdevice_attribute (CUDA Driver API).
enum Attribute {
  kThreadsOfBlock = 1,
  kThreadsX = 2,
  kSharedOfBlock = 8,
  kWarp = 10,
  kRegistersOfBlock = 12,
  kClockKilohertz = 13,
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kComputeMajor = 75,
  kComputeMinor = 76,
};

class CudaDevice final : public DeviceAPI {
 public:
  void SetDevice(Device device) final { cuda_enter(device.device_id); }

  void GetAttr(Device device, DeviceAttrKind kind, ffi::Any* value) final {
    if (kind == tvm::runtime::kExist) {
      int count = 0;
      const bool usable = *CudaDriver::missing() == 0 && CudaDriver::get().cuDeviceGetCount(&count) == 0;
      *value = static_cast<int>(usable && device.device_id < count);
      return;
    }
    cuda_enter(device.device_id);
    const CudaDriver& driver = CudaDriver::get();
    const int id = device.device_id;
    size_t available = 0, total = 0;
    switch (kind) {
      case tvm::runtime::kMaxThreadsPerBlock: *value = attribute(kThreadsOfBlock, id); return;
      case tvm::runtime::kWarpSize: *value = attribute(kWarp, id); return;
      case tvm::runtime::kMaxSharedMemoryPerBlock: *value = attribute(kSharedOfBlock, id); return;
      case tvm::runtime::kMaxClockRate: *value = attribute(kClockKilohertz, id); return;
      case tvm::runtime::kMultiProcessorCount: *value = attribute(kMultiprocessors, id); return;
      case tvm::runtime::kMaxRegistersPerBlock: *value = attribute(kRegistersOfBlock, id); return;
      case tvm::runtime::kL2CacheSizeBytes: *value = attribute(kL2Bytes, id); return;
      case tvm::runtime::kComputeVersion:
        *value = ffi::String(std::to_string(attribute(kComputeMajor, id)) + "." +
                             std::to_string(attribute(kComputeMinor, id)));
        return;
      case tvm::runtime::kDeviceName: {
        char name[256] = "";
        cuda_check(driver.cuDeviceGetName(name, sizeof name, id), "name");
        *value = ffi::String(name);
        return;
      }
      case tvm::runtime::kMaxThreadDimensions:
        *value = ffi::String("[" + std::to_string(attribute(kThreadsX, id)) + ", " +
                             std::to_string(attribute(kThreadsX + 1, id)) + ", " +
                             std::to_string(attribute(kThreadsX + 2, id)) + "]");
        return;
      case tvm::runtime::kDriverVersion: {
        int version = 0;
        cuda_check(driver.cuDriverGetVersion(&version), "version");
        *value = version;
        return;
      }
      case tvm::runtime::kTotalGlobalMemory:
        cuda_check(driver.cuDeviceTotalMem_v2(&total, id), "memory");
        *value = static_cast<int64_t>(total);
        return;
      case tvm::runtime::kAvailableGlobalMemory:
        cuda_check(driver.cuMemGetInfo_v2(&available, &total), "memory");
        *value = static_cast<int64_t>(available);
        return;
      default: return;
    }
  }

  void* AllocDataSpace(Device device, size_t size, size_t, DLDataType) final {
    cuda_enter(device.device_id);
    CudaAddress address = 0;
    // The driver refuses none at all; its memory lies at multiples of 256 bytes.
    cuda_check(CudaDriver::get().cuMemAlloc_v2(&address, size == 0 ? 1 : size), "memory");
    return reinterpret_cast<void*>(address);
  }

  // Addresses of a GPU are numbers: a tensor may begin anywhere in a block, without a copy.
  bool SupportsDevicePointerArithmeticsOnHost() final { return true; }

  void FreeDataSpace(Device device, void* pointer) final {
    cuda_enter(device.device_id);
    // Called from destructors: a context that is gone has freed its memory already.
    CudaDriver::get().cuMemFree_v2(reinterpret_cast<CudaAddress>(pointer));
  }

  TVMStreamHandle CreateStream(Device device) final {
    cuda_enter(device.device_id);
    CudaHandle stream = nullptr;
    cuda_check(CudaDriver::get().cuStreamCreate(&stream, 0), "stream");
    return stream;
  }

  void FreeStream(Device device, TVMStreamHandle stream) final {
    cuda_enter(device.device_id);
    cuda_check(CudaDriver::get().cuStreamDestroy_v2(stream), "stream");
  }

  void StreamSync(Device device, TVMStreamHandle stream) final {
    cuda_enter(device.device_id);
    wait_for_gpu(stream);
  }

  void* AllocWorkspace(Device device, size_t size, DLDataType) final {
    GraphMemory* recorded = GraphMemory::current();
    return recorded != nullptr ? recorded->take(size) : workspace().AllocWorkspace(device, size);
  }
  void FreeWorkspace(Device device, void* pointer) final {
    if (GraphMemory* recorded = GraphMemory::current()) return recorded->leave(pointer);
    workspace().FreeWorkspace(device, pointer);
  }

  static CudaDevice* global() {
    static CudaDevice* const instance = new CudaDevice();
    return instance;
  }

 protected:
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset, size_t size,
                      Device from_device, Device to_device, DLDataType, TVMStreamHandle stream) final {
    const char* source = static_cast<const char*>(from) + from_offset;
    char* target = static_cast<char*>(to) + to_offset;
    const bool from_gpu = from_device.device_type == kDLCUDA, to_gpu = to_device.device_type == kDLCUDA;
    const CudaDriver& driver = CudaDriver::get();
    cuda_enter(from_gpu ? from_device.device_id : to_device.device_id);
    const auto source_address = reinterpret_cast<CudaAddress>(source);
    const auto target_address = reinterpret_cast<CudaAddress>(target);
    char* const shared = from_gpu == to_gpu ? nullptr : shared_with_host(from_gpu ? source_address : target_address, size);
    if (shared != nullptr) {
      // Not copied by the GPU: the processor does, when the GPU has finished with it.
      cuda_check(driver.cuStreamSynchronize(stream), "work");
      if (from_gpu) {
        memcpy(target, shared, size);
      } else {
        memcpy(shared, source, size);
      }
      return;
    }
    if (from_gpu && to_gpu) {
      cuda_check(driver.cuMemcpyDtoDAsync_v2(target_address, source_address, size, stream), "copy");
    } else if (to_gpu) {
      cuda_check(driver.cuMemcpyHtoDAsync_v2(target_address, source, size, stream), "copy to the GPU");
    } else {
      cuda_check(driver.cuMemcpyDtoHAsync_v2(target, source_address, size, stream), "copy from the GPU");
    }
    // Whoever reads or frees the host's memory next does not know of streams.
    if (!(from_gpu && to_gpu)) cuda_check(driver.cuStreamSynchronize(stream), "copy");
  }

 private:
  static int attribute(int number, int device) {
    int value = 0;
    cuda_check(CudaDriver::get().cuDeviceGetAttribute(&value, number, device), "attribute");
    return value;
  }

  static tvm::runtime::WorkspacePool& workspace() {
    static thread_local tvm::runtime::WorkspacePool pool(kDLCUDA, CudaDevice::global());
    return pool;
  }
};

// Time between two events on the GPU's own clock.
class CudaTimer : public tvm::runtime::TimerNode {
 public:
  explicit CudaTimer(Device device) : device_(device) {
    cuda_enter(device.device_id);
    cuda_check(CudaDriver::get().cuEventCreate(&start_, 0), "event");
    cuda_check(CudaDriver::get().cuEventCreate(&stop_, 0), "event");
  }
  ~CudaTimer() override {
    CudaDriver::get().cuEventDestroy_v2(start_);
    CudaDriver::get().cuEventDestroy_v2(stop_);
  }
  void Start() override { record(start_); }
  void Stop() override { record(stop_); }
  int64_t SyncAndGetElapsedNanos() override {
    float milliseconds = 0;
    cuda_check(CudaDriver::get().cuEventSynchronize(stop_), "event");
    cuda_check(CudaDriver::get().cuEventElapsedTime(&milliseconds, start_, stop_), "event");
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("runtime.cuda.CUDATimerNode", CudaTimer, tvm::runtime::TimerNode);

 private:
  void record(CudaHandle event) {
    cuda_check(CudaDriver::get().cuEventRecord(event, DeviceAPI::Get(device_)->GetCurrentStream(device_)),
               "event");
  }

  Device device_;
  CudaHandle start_ = nullptr;
  CudaHandle stop_ = nullptr;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace reflection = ffi::reflection;
  reflection::GlobalDef()
      .def_packed("device_api.cuda",
                  [](ffi::PackedArgs, ffi::Any* value) {
                    DeviceAPI* const device = CudaDevice::global();
                    *value = static_cast<void*>(device);
                  })
      .def("runtime.timer.cuda",
           [](Device device) { return tvm::runtime::Timer(ffi::make_object<CudaTimer>(device)); });
}

}  // namespace
}  // namespace edgetlm
