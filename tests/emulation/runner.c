/* Runs kernels of a board under qemu's user mode, without a C library: calls come in on stdin, and every argument's
 * bytes go out on stdout after its call. Numbers are int64 in the byte order of both sides.
 *
 *   calls, then for each: kernel index, arguments, then for each: dimensions, shape, type code, bits, bytes, data
 *
 * The calling convention is that of tvm/ffi/c_api.h, the tensors those of dlpack.h. */
#include <stdint.h>

#include "without_c_library.h"

typedef struct { void *data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t byte_offset; } Tensor;
typedef struct { int32_t type_index, padding; union { int64_t integer; void *pointer; } value; } Any;
typedef int (*Kernel)(void *, const Any *, int32_t, Any *);
typedef struct { void *sync; int32_t tasks; } Group;
typedef int (*Chunk)(int, Group *, void *);

extern Kernel kernels[];

/* What compiled kernels find the runtime by; each is there only if a kernel needs it. */
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) __attribute__((weak));
extern int (*__TVMBackendFreeWorkspace)(int, int, void *) __attribute__((weak));
extern int (*__TVMBackendParallelLaunch)(Chunk, void *, int) __attribute__((weak));

enum { TENSOR_POINTER = 7, CPU = 1, ALIGNMENT = 64, MOST = 16, READ = 63, WRITE = 64, EXIT = 93 };
static char memory[64 << 20] __attribute__((aligned(64)));
static uint64_t used;

static long call(long number, long a, long b, long c) {
#ifdef __aarch64__
  register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x8 __asm__("x8") = number;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
  return x0;
#else
  register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a7 __asm__("a7") = number;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
  return a0;
#endif
}

static void leave(int code) { call(EXIT, code, 0, 0); }

static void *reserve(uint64_t bytes) {
  void *place = memory + used;
  used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (used > sizeof(memory)) leave(3);
  return place;
}

static void transfer(int number, int file, char *at, int64_t bytes) {
  while (bytes > 0) {
    long done = call(number, file, (long)at, bytes);
    if (done <= 0) leave(4);
    at += done;
    bytes -= done;
  }
}

static int64_t number(void) {
  int64_t value;
  transfer(READ, 0, (char *)&value, sizeof(value));
  return value;
}

static void *workspace(int type, int id, uint64_t bytes, int code, int bits) { return reserve(bytes); }
static int release(int type, int id, void *place) { return 0; }
static int parallel(Chunk chunk, void *data, int tasks) {
  Group group = {0, tasks > 0 ? tasks : 2};
  for (int task = 0; task < group.tasks; ++task) {
    int failed = chunk(task, &group, data);
    if (failed) return failed;
  }
  return 0;
}

static void serve(void) {
  Tensor tensors[MOST];
  Any arguments[MOST], result = {0};
  int64_t bytes[MOST];
  used = 0;
  Kernel kernel = kernels[number()];
  int64_t count = number();
  if (count > MOST) leave(5);
  for (int64_t i = 0; i < count; ++i) {
    Tensor *t = &tensors[i];
    *t = (Tensor){.device_type = CPU, .ndim = (int32_t)number(), .lanes = 1};
    t->shape = reserve(8 * (t->ndim + 1));
    for (int d = 0; d < t->ndim; ++d) t->shape[d] = number();
    t->code = (uint8_t)number();
    t->bits = (uint8_t)number();
    bytes[i] = number();
    t->data = reserve(bytes[i]);
    transfer(READ, 0, t->data, bytes[i]);
    arguments[i] = (Any){.type_index = TENSOR_POINTER, .value.pointer = t};
  }
  int failed = kernel(0, arguments, (int32_t)count, &result);
  if (failed) leave(6);
  for (int64_t i = 0; i < count; ++i) transfer(WRITE, 1, tensors[i].data, bytes[i]);
}

void start(void) {
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = workspace;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = release;
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = parallel;
  for (int64_t calls = number(); calls > 0; --calls) serve();
  leave(0);
}

/* The stack pointer is aligned by the kernel; RISC-V wants its global pointer set. */
#ifdef __aarch64__
__asm__(".globl _start\n_start: b start\n");
#else
__asm__(".globl _start\n_start:\n.option push\n.option norelax\nla gp, __global_pointer$\n.option pop\ncall start\n");
#endif
