// What CUDA C++ gives to a kernel: vector types, halves, barriers and exchanges within a warp.
//
// Threads are coroutines. They stop at barriers and at instructions of a whole warp, and nowhere else; see
// blocks.h for the order in which they run. What runs them is the same for all kernels and compiled once: with
// RUNS_BLOCKS this is a part of it, otherwise of a kernel that is linked with it.
#define __CUDACC_VER_MAJOR__ 12
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
// What both parts share.
#ifdef RUNS_BLOCKS
#define SHARED_STATE __attribute__((visibility("hidden")))
#define COUNTER
#else
#define SHARED_STATE extern __attribute__((visibility("hidden")))
#define COUNTER extern
#endif
#define __global__
#define __device__
#define __host__
#define __align__(size) alignas(size)
#define __forceinline__ inline
#define __launch_bounds__(...)
struct int3d { int x, y, z; };
#define VECTORS(name, type) \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; }; \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  static inline name##2 make_##name##2(type a, type b) { return {a, b}; } \
  static inline name##4 make_##name##4(type a, type b, type c, type d) { return {a, b, c, d}; }
typedef _Float16 half;
typedef half __half;
static inline half __float2half_rn(float v) { return (half)v; }
static inline float __half2float(half v) { return (float)v; }
static inline half __float2half(float v) { return (half)v; }
static inline uint16_t __half_as_ushort(half v) { uint16_t b; memcpy(&b, &v, 2); return b; }
static inline half __ushort_as_half(uint16_t b) { half v; memcpy(&v, &b, 2); return v; }
static inline uint32_t __float_as_uint(float v) { uint32_t b; memcpy(&b, &v, 4); return b; }
static inline bool __hgt(half a, half b) { return a > b; }
static inline bool __hlt(half a, half b) { return a < b; }
struct alignas(4) half2 { half x, y; };
typedef half2 __half2;
static inline half2 make_half2(half a, half b) { return {a, b}; }
static inline half2 __floats2half2_rn(float a, float b) { return {(half)a, (half)b}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(uint, uint32_t)
VECTORS(short, int16_t)
VECTORS(ushort, uint16_t)
VECTORS(char, int8_t)
VECTORS(uchar, uint8_t)
VECTORS(longlong, int64_t)
VECTORS(ulonglong, uint64_t)
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
// Of a number and NaN, the number (CUDA Math API, `fmaxf` and `fminf`).
static inline float max(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b; }
static inline float min(float a, float b) { return a != a ? b : b != b ? a : a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline float emulated_rsqrtf(float v) { return 1.0f / sqrtf(v); }
#define rsqrtf emulated_rsqrtf
static inline float __int_as_float(int v) { float f; memcpy(&f, &v, 4); return f; }

enum { LANES = 32, MOST_THREADS = 1024 };
// BARRIER: waits for the whole block. WARP: waits for its warp at `operation`.
enum { READY, BARRIER, WARP, DONE };
// Reasons why a kernel is given up, as `run` returns them.
enum { FINE, BARRIER_NOT_REACHED, WARP_DIVERGED, MISALIGNED, OUT_OF_RANGE, OUTSIDE };
enum { EXCHANGE, MATRIX_PRODUCT, MATRIX_LOAD };
struct Thread {
  ucontext_t context;
  int3d index;
  int state, operation;
  void* operands;  // what the operation of the warp reads and writes of this thread
};
SHARED_STATE Thread threads_of_block[MOST_THREADS];
SHARED_STATE ucontext_t scheduler_context;
SHARED_STATE int current_thread, count_of_threads, failure;
SHARED_STATE int3d blockIdx;
// `kernel` calls the entry function with `arguments`; `run` calls it for every thread of every block.
SHARED_STATE void** arguments;
SHARED_STATE void (*kernel)();
__attribute__((visibility("hidden"))) int run(void** given, const int* blocks, const int* threads);
#define threadIdx (threads_of_block[current_thread].index)

static void leave(int state) {
  threads_of_block[current_thread].state = state;
  swapcontext(&threads_of_block[current_thread].context, &scheduler_context);
}
// Gives the kernel up; the thread never goes on.
static void fail(int reason) {
  if (failure == FINE) failure = reason;
  leave(DONE);
}
// A pointer through which a value of type T is read or written: a GPU faults where it is not aligned.
template <class T, class P> static inline T* aligned(P pointer) {
  T* place = (T*)pointer;
  if ((uintptr_t)place % alignof(T)) fail(MISALIGNED);
  return place;
}
// Waits until the whole warp is at the operation, which the scheduler then carries out for all of its threads.
static void at_warp(int operation, void* operands) {
  threads_of_block[current_thread].operation = operation;
  threads_of_block[current_thread].operands = operands;
  leave(WARP);
}
static inline void __syncthreads() { leave(BARRIER); }
// Threads run one at a time.
static inline int atomicExch(int* place, int value) { const int before = *place; *place = value; return before; }
static inline unsigned __activemask() { return ~0u; }

// The bits of a value of up to 8 bytes, and the thread whose value it becomes.
struct Exchanged { uint64_t value; int source; };
template <class T> static T exchange(T value, int lane) {
  static_assert(sizeof(T) <= 8, "a value of at most 64 bits");
  Exchanged own = {0, lane < 0 || lane >= LANES ? current_thread : current_thread / LANES * LANES + lane};
  memcpy(&own.value, &value, sizeof(T));
  at_warp(EXCHANGE, &own);
  memcpy(&value, &own.value, sizeof(T));
  return value;
}
#define EXCHANGES(type) \
  static inline type __shfl_down_sync(unsigned, type v, int d, int = 32) { \
    return exchange(v, current_thread % LANES + d); \
  } \
  static inline type __shfl_up_sync(unsigned, type v, int d, int = 32) { \
    return exchange(v, current_thread % LANES - d); \
  } \
  static inline type __shfl_xor_sync(unsigned, type v, int mask, int = 32) { \
    return exchange(v, current_thread % LANES ^ mask); \
  } \
  static inline type __shfl_sync(unsigned, type v, int lane, int = 32) { return exchange(v, lane); }
EXCHANGES(float)
EXCHANGES(int)
EXCHANGES(int64_t)
static inline void __syncwarp(unsigned = ~0u) { exchange(0, current_thread % LANES); }
// Threads of the warp that wait at the exchange take part, and those that have ended do not.
static void exchange_in_warp(int first, int end) {
  uint64_t seen[LANES];
  for (int t = first; t < end; ++t) {
    if (threads_of_block[t].state != WARP) continue;
    Exchanged* own = (Exchanged*)threads_of_block[t].operands;
    Thread& from = threads_of_block[own->source];
    seen[t - first] = from.state == WARP ? ((Exchanged*)from.operands)->value : own->value;
  }
  for (int t = first; t < end; ++t)
    if (threads_of_block[t].state == WARP)
      ((Exchanged*)threads_of_block[t].operands)->value = seen[t - first];
}
