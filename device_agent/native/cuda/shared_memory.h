// Memory that a GPU shares with the processor, where the board has one memory for both.
//
// There the processor writes inputs and reads outputs in place, and what functions of either processor give to the
// other one is not copied. The driver says whether the GPU is part of the processor's chip. Such memory is not kept in
// the caches of a Jetson's GPU (NVIDIA, "CUDA for Tegra", memory types), so only what both processors use lies in it.
#pragma once

#include <tvm/runtime/tensor.h>

#include "cuda/driver.h"

namespace edgetlm {

// Whether a GPU has no memory of its own and takes the processor's.
bool shares_host_memory(DLDevice device);

// An uninitialised tensor of a GPU that the processor uses too: in shared memory if the board has one memory.
tvm::runtime::Tensor shared_tensor(const tvm::ffi::Shape& shape, DLDataType dtype, DLDevice device);

// Waits for a stream. What was given back before the wait for the default one, which orders all work, is free then.
void wait_for_gpu(CudaHandle stream);

// The processor's address of memory of a GPU; null where the memory is the GPU's own.
char* shared_with_host(CudaAddress address, size_t size);

}  // namespace edgetlm
