// Tensors of a GPU in one allocation.
//
// A driver gives memory in whole pages, 2 MiB each where much is asked for. Weights that are allocated one by one take as
// much more as is left of their last pages, which for models of many layers is a large share.
#pragma once

#include <tvm/runtime/tensor.h>

#include <vector>

namespace edgetlm {

// Copies of tensors of the processor on a GPU, side by side; they are made when this returns.
std::vector<tvm::runtime::Tensor> copied_side_by_side(const std::vector<tvm::runtime::Tensor>& given, DLDevice device);

}  // namespace edgetlm
