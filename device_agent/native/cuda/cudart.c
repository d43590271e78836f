// The part of CUDA's runtime library that TVM's CUDA runtime calls, over the driver alone.
//
// TVM's wheels want libcudart.so.13, and a JetPack has that of its own CUDA major, or none where only the driver
// is installed. The driver's interface has not changed since CUDA 4 (its functions carry versions in their
// names), so a library of this name over it serves every JetPack. Numbers of errors and attributes are the same
// in both interfaces (CUDA Runtime API, cudaError and cudaDeviceAttr). The library is compiled without NVIDIA's
// headers: every type is an integer or an opaque pointer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DRIVER = 35, NO_DEVICE = 100, INVALID_DEVICE = 101, UNSUPPORTED = 801 };
enum { HOST_TO_HOST = 0, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 3, BY_ADDRESS = 4 };
enum { ATTRIBUTE_L2_BYTES = 38, MOST_DEVICES = 16, OUT_OF_MEMORY = 2, MAPPED = 2 };
typedef uint64_t Address;
typedef void* Handle;

// Every function of the driver: name, and parameters.
#define DRIVER(X)                                                                        \
  X(cuInit, (unsigned))                                                                  \
  X(cuDeviceGetCount, (int*))                                                            \
  X(cuDeviceGet, (int*, int))                                                            \
  X(cuDeviceGetName, (char*, int, int))                                                  \
  X(cuDeviceGetAttribute, (int*, int, int))                                              \
  X(cuDeviceTotalMem_v2, (size_t*, int))                                                 \
  X(cuDevicePrimaryCtxRetain, (Handle*, int))                                            \
  X(cuCtxSetCurrent, (Handle))                                                           \
  X(cuMemAlloc_v2, (Address*, size_t))                                                   \
  X(cuMemFree_v2, (Address))                                                             \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                          \
  X(cuMemFreeHost, (void*))                                                              \
  X(cuMemHostGetDevicePointer_v2, (Address*, void*, unsigned))                           \
  X(cuMemGetInfo_v2, (size_t*, size_t*))                                                 \
  X(cuMemcpyHtoDAsync_v2, (Address, const void*, size_t, Handle))                        \
  X(cuMemcpyDtoHAsync_v2, (void*, Address, size_t, Handle))                              \
  X(cuMemcpyDtoDAsync_v2, (Address, Address, size_t, Handle))                            \
  X(cuMemcpyAsync, (Address, Address, size_t, Handle))                                   \
  X(cuStreamCreate, (Handle*, unsigned))                                                 \
  X(cuStreamDestroy_v2, (Handle))                                                        \
  X(cuStreamSynchronize, (Handle))                                                       \
  X(cuStreamWaitEvent, (Handle, Handle, unsigned))                                       \
  X(cuEventCreate, (Handle*, unsigned))                                                  \
  X(cuEventDestroy_v2, (Handle))                                                         \
  X(cuEventRecord, (Handle, Handle))                                                     \
  X(cuEventSynchronize, (Handle))                                                        \
  X(cuEventElapsedTime, (float*, Handle, Handle))                                        \
  X(cuStreamBeginCapture_v2, (Handle, int))                                              \
  X(cuStreamEndCapture, (Handle, Handle*))                                               \
  X(cuGraphInstantiateWithFlags, (Handle*, Handle, unsigned long long))                  \
  X(cuGraphLaunch, (Handle, Handle))                                                     \
  X(cuGraphDestroy, (Handle))                                                            \
  X(cuGraphExecDestroy, (Handle))                                                        \
  X(cuGetErrorName, (int, const char**))                                                 \
  X(cuGetErrorString, (int, const char**))

#define POINTER(name, parameters) static int(*name) parameters;
DRIVER(POINTER)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Handle contexts[MOST_DEVICES];
static int state = NO_DRIVER;
static __thread int device;
static __thread int entered;
static __thread int last;

static void open_driver(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) return;
#define LOAD(name, parameters) *(void**)&name = dlsym(library, #name);
  DRIVER(LOAD)
  state = cuInit != NULL ? cuInit(0) : NO_DRIVER;
}

// Each thread has to enter the context of its device once; the context is the one that libraries share.
static int enter(void) {
  pthread_once(&once, open_driver);
  if (state != SUCCESS) return state;
  if (entered) return SUCCESS;
  int handle = 0, code = cuDeviceGet(&handle, device);
  if (code != SUCCESS) return code;
  pthread_mutex_lock(&lock);
  if (contexts[device] == NULL) code = cuDevicePrimaryCtxRetain(&contexts[device], handle);
  pthread_mutex_unlock(&lock);
  if (code == SUCCESS) code = cuCtxSetCurrent(contexts[device]);
  entered = code == SUCCESS;
  return code;
}

static int kept(int code) {
  if (code != SUCCESS) last = code;
  return code;
}

// A call of the driver in the device's context; older drivers lack the youngest functions.
#define CALL(name, ...)                                            \
  int code = enter();                                              \
  if (code == SUCCESS) code = name != NULL ? name(__VA_ARGS__) : UNSUPPORTED; \
  return kept(code)

int cudaGetDeviceCount(int* count) {
  *count = 0;
  pthread_once(&once, open_driver);
  return kept(state != SUCCESS ? state : cuDeviceGetCount(count));
}
int cudaSetDevice(int number) {
  if (number < 0 || number >= MOST_DEVICES) return kept(INVALID_DEVICE);
  entered = entered && number == device;
  device = number;
  return kept(enter());
}
int cudaGetDevice(int* number) {
  *number = device;
  return SUCCESS;
}
int cudaDeviceGetAttribute(int* value, int attribute, int number) { CALL(cuDeviceGetAttribute, value, attribute, number); }

// Of the properties (1008 bytes since CUDA 13) TVM reads the memory's size; name and cache are given too.
int cudaGetDeviceProperties(char* properties, int number) {
  int code = enter(), cache = 0;
  size_t total = 0;
  memset(properties, 0, 1008);
  if (code == SUCCESS) code = cuDeviceGetName(properties, 256, number);
  if (code == SUCCESS) code = cuDeviceTotalMem_v2(&total, number);
  if (code == SUCCESS) code = cuDeviceGetAttribute(&cache, ATTRIBUTE_L2_BYTES, number);
  memcpy(properties + 288, &total, sizeof total);
  memcpy(properties + 596, &cache, sizeof cache);
  return kept(code);
}

int cudaMalloc(void** pointer, size_t size) { CALL(cuMemAlloc_v2, (Address*)pointer, size); }
int cudaFree(void* pointer) {
  if (pointer == NULL) return SUCCESS;
  CALL(cuMemFree_v2, (Address)pointer);
}
int cudaMallocHost(void** pointer, size_t size) { CALL(cuMemHostAlloc, pointer, size, 0); }

// Memory of the host that the GPU reads and writes in place, by an address of its own.
typedef struct Block { char* begin; Address of_gpu; size_t size; struct Block* next; } Block;
static Block* blocks;

// The host's address of memory that it shares with the GPU; NULL where the memory is the GPU's own.
static char* shared_with_host(Address address, size_t size) {
  char* found = NULL;
  pthread_mutex_lock(&lock);
  for (const Block* block = blocks; block != NULL && found == NULL; block = block->next) {
    const uint64_t offset = address - block->of_gpu;
    if (offset <= block->size && size <= block->size - offset) found = block->begin + offset;
  }
  pthread_mutex_unlock(&lock);
  return found;
}
int cudaHostAlloc(void** pointer, size_t size, unsigned flags) {
  int code = enter();
  if (code == SUCCESS) code = cuMemHostAlloc(pointer, size, flags);
  if (code != SUCCESS || flags != MAPPED) return kept(code);
  Block* block = malloc(sizeof(Block));
  Address of_gpu = 0;
  code = block != NULL ? cuMemHostGetDevicePointer_v2(&of_gpu, *pointer, 0) : OUT_OF_MEMORY;
  if (code != SUCCESS) {
    free(block);
    cuMemFreeHost(*pointer);
    return kept(code);
  }
  pthread_mutex_lock(&lock);
  *block = (Block){*pointer, of_gpu, size, blocks};
  blocks = block;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cudaHostGetDevicePointer(void** of_gpu, void* pointer, unsigned flags) {
  CALL(cuMemHostGetDevicePointer_v2, (Address*)of_gpu, pointer, flags);
}
int cudaFreeHost(void* pointer) {
  pthread_mutex_lock(&lock);
  for (Block** place = &blocks; *place != NULL; place = &(*place)->next) {
    if ((*place)->begin != pointer) continue;
    Block* block = *place;
    *place = block->next;
    free(block);
    break;
  }
  pthread_mutex_unlock(&lock);
  CALL(cuMemFreeHost, pointer);
}
int cudaMemGetInfo(size_t* available, size_t* total) { CALL(cuMemGetInfo_v2, available, total); }

// What lies in shared memory is not copied by the GPU: the host does, when the GPU has finished with it.
static int copy_in_place(void* to, const void* from, size_t size, Handle stream) {
  const int code = cuStreamSynchronize(stream);
  if (code == SUCCESS) memcpy(to, from, size);
  return kept(code);
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, Handle stream) {
  const int code = enter();
  if (code != SUCCESS) return kept(code);
  void* place = kind == HOST_TO_DEVICE ? shared_with_host((Address)to, size) : NULL;
  if (place != NULL) return copy_in_place(place, from, size, stream);
  place = kind == DEVICE_TO_HOST ? shared_with_host((Address)from, size) : NULL;
  if (place != NULL) return copy_in_place(to, place, size, stream);
  switch (kind) {
    case HOST_TO_DEVICE: { CALL(cuMemcpyHtoDAsync_v2, (Address)to, from, size, stream); }
    case DEVICE_TO_HOST: { CALL(cuMemcpyDtoHAsync_v2, to, (Address)from, size, stream); }
    case DEVICE_TO_DEVICE: { CALL(cuMemcpyDtoDAsync_v2, (Address)to, (Address)from, size, stream); }
    case HOST_TO_HOST:
    case BY_ADDRESS: { CALL(cuMemcpyAsync, (Address)to, (Address)from, size, stream); }
  }
  return kept(INVALID_VALUE);
}
int cudaMemcpyPeerAsync(void* to, int of, const void* from, int in, size_t size, Handle stream) {
  if (of != in) return kept(UNSUPPORTED);
  CALL(cuMemcpyDtoDAsync_v2, (Address)to, (Address)from, size, stream);
}

int cudaStreamCreate(Handle* stream) { CALL(cuStreamCreate, stream, 0); }
int cudaStreamCreateWithFlags(Handle* stream, unsigned flags) { CALL(cuStreamCreate, stream, flags); }
int cudaStreamDestroy(Handle stream) { CALL(cuStreamDestroy_v2, stream); }
int cudaStreamSynchronize(Handle stream) { CALL(cuStreamSynchronize, stream); }
int cudaStreamWaitEvent(Handle stream, Handle event, unsigned flags) { CALL(cuStreamWaitEvent, stream, event, flags); }
int cudaStreamBeginCapture(Handle stream, int mode) { CALL(cuStreamBeginCapture_v2, stream, mode); }
int cudaStreamEndCapture(Handle stream, Handle* graph) { CALL(cuStreamEndCapture, stream, graph); }

int cudaEventCreate(Handle* event) { CALL(cuEventCreate, event, 0); }
int cudaEventDestroy(Handle event) { CALL(cuEventDestroy_v2, event); }
int cudaEventRecord(Handle event, Handle stream) { CALL(cuEventRecord, event, stream); }
int cudaEventSynchronize(Handle event) { CALL(cuEventSynchronize, event); }
int cudaEventElapsedTime(float* milliseconds, Handle from, Handle to) { CALL(cuEventElapsedTime, milliseconds, from, to); }

int cudaGraphInstantiate(Handle* made, Handle graph, unsigned long long flags) {
  CALL(cuGraphInstantiateWithFlags, made, graph, flags);
}
int cudaGraphLaunch(Handle graph, Handle stream) { CALL(cuGraphLaunch, graph, stream); }
int cudaGraphDestroy(Handle graph) { CALL(cuGraphDestroy, graph); }
int cudaGraphExecDestroy(Handle graph) { CALL(cuGraphExecDestroy, graph); }

int cudaGetLastError(void) {
  int code = last;
  last = SUCCESS;
  return code;
}
int cudaPeekAtLastError(void) { return last; }
const char* cudaGetErrorName(int code) {
  const char* text = NULL;
  if (code == NO_DRIVER) return "cudaErrorInsufficientDriver";
  if (cuGetErrorName == NULL || cuGetErrorName(code, &text) != SUCCESS || text == NULL) return "unknown";
  return text;
}
const char* cudaGetErrorString(int code) {
  const char* text = NULL;
  if (code == NO_DRIVER) return "no NVIDIA driver (libcuda.so.1) on this machine";
  if (cuGetErrorString == NULL || cuGetErrorString(code, &text) != SUCCESS || text == NULL) return "unknown";
  return text;
}
