#include "cuda/shared_memory.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/driver.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// CU_DEVICE_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, CU_MEMHOSTALLOC_DEVICEMAP.
constexpr int kIntegrated = 18, kCanMap = 19;
constexpr unsigned kMapped = 2;
// Free blocks that are kept, at most, and the step in size of those that are larger.
constexpr size_t kMostFreeBytes = size_t{64} << 20, kStep = size_t{1} << 20, kPage = 4096;

// The size of the block for some bytes: lengths of a range have tensors of many sizes, and few blocks.
size_t size_of_block(size_t size) {
  const size_t step = std::clamp(std::bit_ceil(std::min(size, kStep)), kPage, kStep);
  return (size + step - 1) / step * step;
}

struct Block {
  char* begin;
  CudaAddress of_gpu;
  size_t size;
};

// All blocks, of all devices; there until the process ends, like the driver.
class SharedMemory {
 public:
  static SharedMemory& get() {
    static SharedMemory* const instance = new SharedMemory();
    return *instance;
  }

  // Whether a device has no memory of its own and reads that of the processor.
  bool usable(int device) {
    cuda_enter(device);
    int integrated = 0, can_map = 0;
    const CudaDriver& driver = CudaDriver::get();
    cuda_check(driver.cuDeviceGetAttribute(&integrated, kIntegrated, device), "attribute");
    cuda_check(driver.cuDeviceGetAttribute(&can_map, kCanMap, device), "attribute");
    return integrated != 0 && can_map != 0;
  }

  Block take(size_t size) {
    size = size_of_block(size);
    const std::lock_guard<std::mutex> guard(lock_);
    auto kept = std::find_if(free_.rbegin(), free_.rend(), [size](const Block& one) { return one.size == size; });
    Block block{nullptr, 0, size};
    if (kept != free_.rend()) {
      block = *kept;
      free_.erase(std::next(kept).base());
    } else {
      void* begin = nullptr;
      const CudaDriver& driver = CudaDriver::get();
      cuda_check(driver.cuMemHostAlloc(&begin, size, kMapped), "memory");
      block.begin = static_cast<char*>(begin);
      const int code = driver.cuMemHostGetDevicePointer_v2(&block.of_gpu, begin, 0);
      if (code != 0) driver.cuMemFreeHost(begin);
      cuda_check(code, "memory");
    }
    used_[block.of_gpu] = block;
    return block;
  }

  // The GPU may still be at work with a block: it is free once somebody has waited for the GPU.
  void give_back(const Block& block) {
    const std::lock_guard<std::mutex> guard(lock_);
    used_.erase(block.of_gpu);
    pending_.push_back(block);
  }

  void wait(CudaHandle stream) {
    const CudaDriver& driver = CudaDriver::get();
    std::vector<Block> done;
    if (stream == nullptr) {
      const std::lock_guard<std::mutex> guard(lock_);
      done.swap(pending_);
    }
    // Where the GPU has failed, its memory is lost with everything else of it.
    cuda_check(driver.cuStreamSynchronize(stream), "work");
    std::vector<Block> oldest;
    {
      const std::lock_guard<std::mutex> guard(lock_);
      free_.insert(free_.end(), done.begin(), done.end());
      size_t total = 0;
      for (const Block& block : free_) total += block.size;
      auto end = free_.begin();
      while (total > kMostFreeBytes) total -= (end++)->size;
      oldest.assign(free_.begin(), end);
      free_.erase(free_.begin(), end);
    }
    for (const Block& block : oldest) driver.cuMemFreeHost(block.begin);
  }

  char* host_address(CudaAddress address, size_t size) {
    const std::lock_guard<std::mutex> guard(lock_);
    auto place = used_.upper_bound(address);
    if (place == used_.begin()) return nullptr;
    const Block& block = (--place)->second;
    const uint64_t offset = address - block.of_gpu;
    return offset <= block.size && size <= block.size - offset ? block.begin + offset : nullptr;
  }

 private:
  std::mutex lock_;
  // Those that were given back last are at the end. Allocating takes the driver long, and who runs without graphs does
  // so in every run.
  std::vector<Block> free_;
  std::vector<Block> pending_;
  std::map<CudaAddress, Block> used_;
};

// A block as a tensor's memory.
struct Taken {
  Block block;
  void AllocData(DLTensor* tensor) { tensor->data = reinterpret_cast<void*>(block.of_gpu); }
  void FreeData(DLTensor*) { SharedMemory::get().give_back(block); }
};

// The same memory for the processor; the tensor of the GPU keeps it.
struct Beside {
  char* begin;
  ffi::Tensor of_gpu;
  void AllocData(DLTensor* tensor) { tensor->data = begin; }
  void FreeData(DLTensor*) {}
};

constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDevice kGpu{kDLCUDA, 0};

char* host_address(const ffi::Tensor& tensor) {
  const DLTensor* held = tensor.GetDLTensorPtr();
  return shared_with_host(reinterpret_cast<CudaAddress>(held->data) + held->byte_offset, ffi::GetDataSize(*held));
}

ffi::Tensor beside(const ffi::Tensor& of_gpu) {
  const DLTensor* held = of_gpu.GetDLTensorPtr();
  const ffi::Shape shape(held->shape, held->shape + held->ndim);
  char* const begin = host_address(of_gpu);
  if (begin == nullptr) return tvm::runtime::Tensor::Empty(shape, held->dtype, kCpu);
  return ffi::Tensor::FromNDAlloc(Beside{begin, of_gpu}, shape, held->dtype, kCpu);
}

// Makes what one processor has written readable for the other one.
void cross(const ffi::Tensor& source, const ffi::Tensor& target) {
  const bool from_gpu = source.GetDLTensorPtr()->device.device_type == kDLCUDA;
  const DLDevice gpu = (from_gpu ? source : target).GetDLTensorPtr()->device;
  if (host_address(from_gpu ? source : target) == nullptr) {
    tvm::runtime::Tensor::CopyFromTo(source.GetDLTensorPtr(), const_cast<DLTensor*>(target.GetDLTensorPtr()));
  } else if (from_gpu) {
    tvm::runtime::DeviceAPI::Get(gpu)->StreamSync(gpu, nullptr);
  }
}

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace reflection = ffi::reflection;
  // What compiled models call: see host/build/memory/crossings.py.
  reflection::GlobalDef()
      .def("vm.builtin.edgetlm_tensor",
           [](const ffi::Shape& shape, DLDataType dtype) -> ffi::Tensor { return shared_tensor(shape, dtype, kGpu); })
      .def("vm.builtin.edgetlm_beside", beside)
      .def("edgetlm.cross", cross);
}

}  // namespace

bool shares_host_memory(DLDevice device) { return SharedMemory::get().usable(device.device_id); }

tvm::runtime::Tensor shared_tensor(const ffi::Shape& shape, DLDataType dtype, DLDevice device) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  const size_t size = ffi::GetDataSize(elements, dtype);
  if (size == 0 || !shares_host_memory(device)) {
    return tvm::runtime::Tensor::Empty(shape, dtype, device);
  }
  return tvm::runtime::Tensor(
      ffi::Tensor::FromNDAlloc(Taken{SharedMemory::get().take(size)}, shape, dtype, device));
}

void wait_for_gpu(CudaHandle stream) { SharedMemory::get().wait(stream); }

char* shared_with_host(CudaAddress address, size_t size) { return SharedMemory::get().host_address(address, size); }

}  // namespace edgetlm
