#include "cuda/side_by_side.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include "cuda/shared_memory.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// Where allocations of a driver begin: at multiples of 256 bytes. Kernels load whole lines of 128.
constexpr size_t kAlignment = 256;

// A part of a block as a tensor's memory; every part keeps the block.
struct Part {
  tvm::runtime::Tensor block;
  size_t place;
  void AllocData(DLTensor* tensor) { tensor->data = static_cast<char*>(block->data) + place; }
  void FreeData(DLTensor*) {}
};

}  // namespace

std::vector<tvm::runtime::Tensor> copied_side_by_side(const std::vector<tvm::runtime::Tensor>& given, DLDevice device) {
  std::vector<tvm::runtime::Tensor> made;
  if (given.empty()) return made;
  std::vector<size_t> places;
  size_t size = 0;
  for (const tvm::runtime::Tensor& tensor : given) {
    places.push_back(size);
    size += (ffi::GetDataSize(*tensor.operator->()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  const DLDataType bytes{kDLUInt, 8, 1};
  const auto block = tvm::runtime::Tensor::Empty(ffi::Shape({static_cast<int64_t>(size)}), bytes, device);
  for (size_t number = 0; number < given.size(); ++number) {
    const DLTensor* one = given[number].operator->();
    const ffi::Shape shape(one->shape, one->shape + one->ndim);
    made.push_back(tvm::runtime::Tensor(
        ffi::Tensor::FromNDAlloc(Part{block, places[number]}, shape, one->dtype, device)));
    made.back().CopyFrom(given[number]);
  }
  wait_for_gpu(nullptr);
  return made;
}

}  // namespace edgetlm
