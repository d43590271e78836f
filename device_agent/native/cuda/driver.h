// The CUDA driver, found when it is first asked for: the same executable serves boards with and without one.
// Only functions that every driver since CUDA 11.4 (JetPack 5) has; every type is an integer or an opaque pointer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgetlm {

using CudaAddress = uint64_t;
using CudaHandle = void*;

#define EDGETLM_CUDA_DRIVER(X)                                                                      \
  X(cuInit, (unsigned))                                                                             \
  X(cuDeviceGetCount, (int*))                                                                       \
  X(cuDeviceGet, (int*, int))                                                                       \
  X(cuDeviceGetName, (char*, int, int))                                                             \
  X(cuDeviceGetAttribute, (int*, int, int))                                                         \
  X(cuDeviceTotalMem_v2, (size_t*, int))                                                            \
  X(cuDriverGetVersion, (int*))                                                                     \
  X(cuDevicePrimaryCtxRetain, (CudaHandle*, int))                                                   \
  X(cuCtxSetCurrent, (CudaHandle))                                                                  \
  X(cuMemAlloc_v2, (CudaAddress*, size_t))                                                          \
  X(cuMemFree_v2, (CudaAddress))                                                                    \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                                     \
  X(cuMemHostGetDevicePointer_v2, (CudaAddress*, void*, unsigned))                                  \
  X(cuMemFreeHost, (void*))                                                                         \
  X(cuMemGetInfo_v2, (size_t*, size_t*))                                                            \
  X(cuMemcpyHtoDAsync_v2, (CudaAddress, const void*, size_t, CudaHandle))                           \
  X(cuMemcpyDtoHAsync_v2, (void*, CudaAddress, size_t, CudaHandle))                                 \
  X(cuMemcpyDtoDAsync_v2, (CudaAddress, CudaAddress, size_t, CudaHandle))                           \
  X(cuStreamCreate, (CudaHandle*, unsigned))                                                        \
  X(cuStreamDestroy_v2, (CudaHandle))                                                               \
  X(cuStreamSynchronize, (CudaHandle))                                                              \
  X(cuEventCreate, (CudaHandle*, unsigned))                                                         \
  X(cuEventDestroy_v2, (CudaHandle))                                                                \
  X(cuEventRecord, (CudaHandle, CudaHandle))                                                        \
  X(cuEventSynchronize, (CudaHandle))                                                               \
  X(cuEventElapsedTime, (float*, CudaHandle, CudaHandle))                                           \
  X(cuStreamBeginCapture_v2, (CudaHandle, int))                                                     \
  X(cuStreamEndCapture, (CudaHandle, CudaHandle*))                                                  \
  X(cuGraphInstantiateWithFlags, (CudaHandle*, CudaHandle, unsigned long long))                     \
  X(cuGraphLaunch, (CudaHandle, CudaHandle))                                                        \
  X(cuGraphDestroy, (CudaHandle))                                                                   \
  X(cuGraphExecDestroy, (CudaHandle))                                                               \
  X(cuModuleLoadData, (CudaHandle*, const void*))                                                   \
  X(cuModuleUnload, (CudaHandle))                                                                   \
  X(cuModuleGetFunction, (CudaHandle*, CudaHandle, const char*))                                    \
  X(cuFuncSetAttribute, (CudaHandle, int, int))                                                     \
  X(cuLaunchKernel, (CudaHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     CudaHandle, void**, void**))                                                   \
  X(cuGetErrorName, (int, const char**))                                                            \
  X(cuGetErrorString, (int, const char**))

struct CudaDriver {
#define EDGETLM_POINTER(name, parameters) int(*name) parameters = nullptr;
  EDGETLM_CUDA_DRIVER(EDGETLM_POINTER)
#undef EDGETLM_POINTER

  // The driver of this process; throws tvm::ffi::Error where there is none.
  static const CudaDriver& get();
  // Why there is none, "" where there is one.
  static const char* missing();
};

// Throws tvm::ffi::Error with the driver's words unless `code` is 0.
void cuda_check(int code, const char* what);

// Makes the context of a device, which all libraries share, this thread's.
void cuda_enter(int device);

}  // namespace edgetlm
