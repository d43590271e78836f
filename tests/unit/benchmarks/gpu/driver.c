/* A driver of CUDA whose answers a test chooses: what cuInit returns, and a cubin that ends the process. */
#include <stdlib.h>
#include <string.h>

#ifndef CODE
#define CODE 0
#endif

static char one;

#define NOTHING(name) int name() { return 0; }
#define HANDLE(name) int name(void** made) { *made = &one; return 0; }

int cuInit(unsigned flags) { return CODE; }
int cuDeviceGet(int* device, int number) { return 0; }
int cuDeviceGetName(char* name, int size, int device) { memcpy(name, "none", 5); return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetAttribute(int* value, int which, int device) { *value = 9; return 0; }
int cuMemGetInfo_v2(size_t* left, size_t* total) { *left = *total = 1 << 20; return 0; }
int cuMemAlloc_v2(unsigned long long* address, size_t size) { *address = 1; return 0; }
int cuEventElapsedTime(float* milliseconds) { *milliseconds = 1.0f; return 0; }
int cuStreamEndCapture(void* stream, void** graph) { *graph = &one; return 0; }

/* As in NVIDIA's stub, which has a code for itself and no names. */
int cuGetErrorName(int code, const char** name) {
  if (code != 100) return code;
  *name = "CUDA_ERROR_NO_DEVICE";
  return 0;
}

int cuModuleLoadData(void** made, const char* cubin) {
  if (!strncmp(cubin, "crash", 5)) abort();
  *made = &one;
  return 0;
}

HANDLE(cuDevicePrimaryCtxRetain) HANDLE(cuStreamCreate) HANDLE(cuModuleGetFunction) HANDLE(cuEventCreate)
HANDLE(cuGraphInstantiateWithFlags)
NOTHING(cuCtxSetCurrent) NOTHING(cuMemcpyHtoDAsync_v2) NOTHING(cuStreamSynchronize) NOTHING(cuMemFree_v2)
NOTHING(cuModuleUnload) NOTHING(cuLaunchKernel) NOTHING(cuStreamBeginCapture_v2) NOTHING(cuGraphDestroy)
NOTHING(cuGraphLaunch) NOTHING(cuGraphExecDestroy) NOTHING(cuEventRecord) NOTHING(cuEventSynchronize)
NOTHING(cuEventDestroy_v2)
