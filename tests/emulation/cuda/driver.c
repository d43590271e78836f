// A CUDA driver without a GPU: memory is the host's, and a "cubin" is a shared library for the host that runs
// the threads of a kernel one after the other (see emulated.py).
//
// Device addresses are marked, so that host code that reads device memory dies, and a copy in the wrong
// direction is refused. Kernels run late: when somebody waits for the GPU, or does what waits by itself. So the host
// that reads memory which it shares with the GPU without a wait finds what was there before, and a kernel finds what
// the host has written meanwhile.
//
// EMULATED_DISCRETE=1 in the environment: the GPU has memory of its own. EMULATED_NO_GRAPHS=1: nothing can be captured.
// EMULATED_ALLOCATED names a file that gets a line for each allocation of the GPU's memory, its bytes, and another for each
// that is freed, with a sign.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MARK 0x0100000000000000ull
enum {
  INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_IMPLICIT = 906
};
typedef uint64_t Address;
typedef struct { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned count; } Launch;
typedef int (*Run)(void**, const int*, const int*);
// A kernel, how many arguments it has, and the bytes of each; 0 for the address of an array.
typedef struct { Run run; int arguments; const unsigned char* sizes; } Function;
enum { MOST_ARGUMENTS = 32, MOST_NODES = 4096 };
// A launch of a graph. Arguments are copied when it is captured, as a driver does.
typedef struct { Function* function; int grid[3], block[3]; Address values[MOST_ARGUMENTS]; } Node;
typedef struct { int count; Node nodes[MOST_NODES]; } Graph;
// What the thread captures, and on which stream; once something has broken it, nothing mends it.
static __thread Graph* capturing;
static __thread void* capture_stream;
static __thread int capture_broken;
// Launches from outside of a graph, of graphs, and bytes that were copied between host and GPU, for tests.
int emulated_launches, emulated_graphs;
long long emulated_copied;

// Adds a line with a number of bytes to a file that a variable of the environment names, for tests of executors that are
// no library.
static void note(const char* variable, long long size) {
  const char* path = getenv(variable);
  FILE* file = path != NULL ? fopen(path, "a") : NULL;
  if (file == NULL) return;
  fprintf(file, "%lld\n", size);
  fclose(file);
}

// Counts bytes that host and GPU copy. EMULATED_COPIED names a file that gets a line for each copy.
static void count_copied(size_t size) {
  emulated_copied += size;
  note("EMULATED_COPIED", size);
}

static int wait_for_all(void);

// Whether work on a stream may be done at once: 0, or the error of a driver while another stream captures.
static int outside_of_capture(const void* stream) {
  if (capturing == NULL) return 0;
  capture_broken = 1;
  return stream == capture_stream ? CAPTURE_UNSUPPORTED : CAPTURE_IMPLICIT;
}

static char* host(Address address) { return (char*)(address - MARK); }
static int marked(Address address) { return (address & 0xff00000000000000ull) == MARK; }

int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return number == 0 ? 0 : 101; }
int cuDeviceGetName(char* name, int size, int device) { snprintf(name, size, "emulated %d", device); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 1: *value = 1024; break;        // threads of a block
    case 8: *value = 49152; break;       // shared memory of a block
    case 10: *value = 32; break;         // warp
    case 18: *value = getenv("EMULATED_DISCRETE") == NULL; break;  // whether host and GPU share their memory
    case 75: *value = 8; break;          // compute capability
    case 76: *value = 7; break;
    default: *value = 1;
  }
  return 0;
}
int cuDriverGetVersion(int* version) { *version = 12060; return 0; }
int cuDeviceTotalMem_v2(size_t* size, int device) { *size = 1ull << 30; return device; }
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = (void*)(intptr_t)(device + 1); return 0; }
static __thread void* current;
int cuCtxSetCurrent(void* context) { current = context; return 0; }
int cuCtxGetCurrent(void** context) { *context = current; return 0; }
// Memory that is allocated, for graphs: they keep addresses.
typedef struct Block { char* begin; size_t size; struct Block* next; } Block;
static Block* blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static void remember(char* begin, size_t size) {
  Block* block = malloc(sizeof(Block));
  pthread_mutex_lock(&blocks_lock);
  *block = (Block){begin, size, blocks};
  blocks = block;
  pthread_mutex_unlock(&blocks_lock);
}
// How large a block was that is no longer allocated.
static size_t forget(const char* begin) {
  size_t size = 0;
  pthread_mutex_lock(&blocks_lock);
  for (Block** place = &blocks; *place != NULL; place = &(*place)->next) {
    if ((*place)->begin != begin) continue;
    Block* block = *place;
    *place = block->next;
    size = block->size;
    free(block);
    break;
  }
  pthread_mutex_unlock(&blocks_lock);
  return size;
}
static int allocated(const char* address) {
  pthread_mutex_lock(&blocks_lock);
  const Block* block = blocks;
  while (block != NULL && !(address >= block->begin && address < block->begin + block->size)) block = block->next;
  pthread_mutex_unlock(&blocks_lock);
  return block != NULL;
}
// Whether a kernel may read and write through an argument. An array without elements may have no address.
static int usable(Address address) { return address == 0 || (marked(address) && allocated(host(address))); }
int cuMemAlloc_v2(Address* address, size_t size) {
  if (current == NULL) return 201;
  if (size > 1ull << 30) return OUT_OF_MEMORY;
  void* memory = NULL;
  if (posix_memalign(&memory, 256, size ? size : 1) != 0) return OUT_OF_MEMORY;
  memset(memory, 0xff, size);  // not a number: what is not written shows
  remember(memory, size ? size : 1);
  note("EMULATED_ALLOCATED", size);
  *address = (Address)memory + MARK;
  return 0;
}
int cuMemFree_v2(Address address) {
  const int code = wait_for_all();
  if (code != 0) return code;
  note("EMULATED_ALLOCATED", -(long long)forget(host(address)));
  free(host(address));
  return marked(address) ? 0 : INVALID_VALUE;
}
enum { MAPPED = 2 };
int cuMemHostAlloc(void** memory, size_t size, unsigned flags) {
  if (current == NULL) return 201;
  if (posix_memalign(memory, 4096, size ? size : 1) != 0) return OUT_OF_MEMORY;
  memset(*memory, 0xff, size);
  if (flags == MAPPED) remember(*memory, size ? size : 1);
  return flags == 0 || flags == MAPPED ? 0 : INVALID_VALUE;
}
int cuMemHostGetDevicePointer_v2(Address* address, void* memory, unsigned flags) {
  if (flags != 0 || !allocated(memory)) return INVALID_VALUE;
  *address = (Address)memory + MARK;
  return 0;
}
int cuMemFreeHost(void* memory) {
  const int code = wait_for_all();
  forget(memory);
  free(memory);
  return code;
}
int cuMemGetInfo_v2(size_t* available, size_t* total) { *available = *total = 1ull << 30; return 0; }
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t size, void* stream) {
  const int refused = outside_of_capture(stream);
  if (refused != 0) return refused;
  if (!marked(to) || marked((Address)from)) return INVALID_VALUE;
  const int code = wait_for_all();
  count_copied(size);
  memcpy(host(to), from, size);
  return code;
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t size, void* stream) {
  const int refused = outside_of_capture(stream);
  if (refused != 0) return refused;
  if (!marked(from) || marked((Address)to)) return INVALID_VALUE;
  const int code = wait_for_all();
  count_copied(size);
  memcpy(to, host(from), size);
  return code;
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t size, void* stream) {
  const int refused = outside_of_capture(stream);
  if (refused != 0) return refused;
  if (!marked(from) || !marked(to)) return INVALID_VALUE;
  const int code = wait_for_all();
  memmove(host(to), host(from), size);
  return code;
}
int cuStreamCreate(void** stream, unsigned flags) { *stream = malloc(1); (void)flags; return 0; }
int cuStreamDestroy_v2(void* stream) { free(stream); return 0; }
int cuStreamSynchronize(void* stream) {
  const int refused = outside_of_capture(stream);
  return refused != 0 ? refused : wait_for_all();
}
int cuStreamBeginCapture_v2(void* stream, int mode) {
  (void)mode;
  // The default stream cannot be captured.
  if (stream == NULL || capturing != NULL || getenv("EMULATED_NO_GRAPHS") != NULL) return CAPTURE_UNSUPPORTED;
  capturing = calloc(1, sizeof(Graph));
  capture_stream = stream;
  capture_broken = 0;
  return capturing != NULL ? 0 : OUT_OF_MEMORY;
}
int cuStreamEndCapture(void* stream, void** graph) {
  if (capturing == NULL || stream != capture_stream) return INVALID_VALUE;
  if (capture_broken) free(capturing);
  *graph = capture_broken ? NULL : capturing;
  capturing = NULL;
  return capture_broken ? CAPTURE_INVALIDATED : 0;
}
int cuGraphInstantiateWithFlags(void** replay, void* graph, unsigned long long flags) {
  (void)flags;
  *replay = malloc(sizeof(Graph));
  if (graph == NULL || *replay == NULL) return INVALID_VALUE;
  memcpy(*replay, graph, sizeof(Graph));
  return 0;
}
int cuGraphDestroy(void* graph) { free(graph); return 0; }
int cuGraphExecDestroy(void* replay) { free(replay); return 0; }
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) { (void)stream; (void)event; return flags; }
int cuEventCreate(void** event, unsigned flags) { *event = calloc(1, sizeof(struct timespec)); return flags; }
int cuEventDestroy_v2(void* event) { free(event); return 0; }
// An event has the time at which the work before it is done: it is done first.
int cuEventRecord(void* event, void* stream) {
  (void)stream;
  const int code = wait_for_all();
  return code != 0 ? code : clock_gettime(CLOCK_MONOTONIC, event);
}
int cuEventSynchronize(void* event) { (void)event; return wait_for_all(); }
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const struct timespec *a = from, *b = to;
  *milliseconds = (b->tv_sec - a->tv_sec) * 1e3f + (b->tv_nsec - a->tv_nsec) * 1e-6f;
  return 0;
}
int cuGetErrorName(int code, const char** text) {
  *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int code, const char** text) { return cuGetErrorName(code, text); }

int cuModuleLoadData(void** module, const void* image) {
  const Elf64_Ehdr* header = image;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return INVALID_IMAGE;
  size_t size = header->e_shoff + (size_t)header->e_shentsize * header->e_shnum;
  int file = memfd_create("cubin", 0);
  if (file < 0 || write(file, image, size) != (ssize_t)size) return INVALID_IMAGE;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  // Kept open: the loader tells libraries apart by their path.
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*module == NULL) fprintf(stderr, "%s\n", dlerror());
  return *module != NULL ? 0 : INVALID_IMAGE;
}
int cuModuleUnload(void* module) { return dlclose(module); }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  char symbol[512];
  snprintf(symbol, sizeof symbol, "run_%s", name);
  Function* found = calloc(1, sizeof(Function));
  found->run = (Run)dlsym(module, symbol);
  snprintf(symbol, sizeof symbol, "arguments_%s", name);
  const unsigned char* described = dlsym(module, symbol);
  if (found->run == NULL || described == NULL || described[0] > MOST_ARGUMENTS) return NOT_FOUND;
  found->arguments = described[0];
  found->sizes = described + 1;
  *function = found;
  return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) { (void)function; (void)attribute; (void)value; return 0; }
int cuTensorMapEncodeTiled(void) { return INVALID_VALUE; }
// Launches that have not run yet, in their order.
static Node* waiting;
static int waiting_count, waiting_room;
static pthread_mutex_t waiting_lock = PTHREAD_MUTEX_INITIALIZER;

static int run_node(Node* node) {
  void* arguments[MOST_ARGUMENTS];
  for (int k = 0; k < node->function->arguments; ++k) arguments[k] = &node->values[k];
  const int reason = node->function->run(arguments, node->grid, node->block);
  // One of REASONS of tests/cuda_emulator/source.py: a driver has no words for them.
  if (reason != 0) fprintf(stderr, "emulated kernel given up, reason %d\n", reason);
  return reason == 0 ? 0 : LAUNCH_FAILED;
}
static int wait_for_all(void) {
  int code = 0;
  pthread_mutex_lock(&waiting_lock);
  for (int i = 0; i < waiting_count && code == 0; ++i) code = run_node(&waiting[i]);
  waiting_count = 0;
  pthread_mutex_unlock(&waiting_lock);
  return code;
}
static int start_later(const Node* node) {
  for (int i = 0; i < node->function->arguments; ++i) {
    if (node->function->sizes[i] == 0 && !usable(node->values[i])) return ILLEGAL_ADDRESS;
  }
  pthread_mutex_lock(&waiting_lock);
  if (waiting_count == waiting_room) {
    waiting_room = 2 * waiting_room + 64;
    waiting = realloc(waiting, waiting_room * sizeof(Node));
    if (waiting == NULL) abort();
  }
  waiting[waiting_count++] = *node;
  pthread_mutex_unlock(&waiting_lock);
  return 0;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  (void)shared; (void)extra;
  if (current == NULL) return 201;
  Node node = {function, {(int)gx, (int)gy, (int)gz}, {(int)bx, (int)by, (int)bz}, {0}};
  for (int i = 0; i < node.function->arguments; ++i) {
    // No more than the argument has: what lies behind it is anything.
    const size_t size = node.function->sizes[i] != 0 ? node.function->sizes[i] : sizeof(Address);
    memcpy(&node.values[i], arguments[i], size);
  }
  if (capturing != NULL) {
    if (stream != capture_stream) return outside_of_capture(stream);
    if (capturing->count == MOST_NODES) return OUT_OF_MEMORY;
    capturing->nodes[capturing->count++] = node;
    return 0;
  }
  ++emulated_launches;
  return start_later(&node);
}
int cuGraphLaunch(void* replay, void* stream) {
  const int refused = outside_of_capture(stream);
  if (refused != 0) return refused;
  const Graph* graph = replay;
  ++emulated_graphs;
  for (int i = 0; i < graph->count; ++i) {
    const int code = start_later(&graph->nodes[i]);
    if (code != 0) return code;
  }
  return 0;
}
int cuLaunchKernelEx(const Launch* launch, void* function, void** arguments, void** extra) {
  const unsigned *g = launch->grid, *b = launch->block;
  return cuLaunchKernel(function, g[0], g[1], g[2], b[0], b[1], b[2], launch->shared, launch->stream, arguments, extra);
}
