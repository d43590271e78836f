// Shared memory, and how often the threads of a warp meet in one of its banks.
//
// There are 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared Memory"). Threads that touch different words
// of one bank at once are served one after the other. Accesses of 8 bytes are served by half warps, of 16 bytes by
// quarters. The n-th accesses of the threads of a warp between two stops count as one instruction.

// Executed by all warps of all blocks since the library was loaded: further passes that loads and stores took
// because threads met in a bank, and the same of copies (cp.async); accesses that were too many to look at.
extern "C" {
long emulated_accesses, emulated_access_conflicts, emulated_copy_conflicts, emulated_not_counted;
}

// Shared memory has addresses of 32 bits: distances from a byte of this library, in whose data it lies.
alignas(1024) static char shared_origin[1024];
static inline uint32_t shared_address(const void* pointer) {
  return (uint32_t)((const char*)pointer - shared_origin);
}
static inline char* shared_pointer(uint32_t address) { return shared_origin + (int32_t)address; }
static inline size_t __cvta_generic_to_shared(const void* pointer) { return shared_address(pointer); }

enum { ACCESS, COPY, MOST_TOUCHED = 1 << 14 };
struct Touched { uint32_t address; uint16_t bytes, kind; };
static Touched touched[LANES][MOST_TOUCHED];
static int touched_count[LANES];
static inline void touch(const void* pointer, int bytes, int kind) {
  const int lane = current_thread % LANES;
  if (touched_count[lane] == MOST_TOUCHED) { ++emulated_not_counted; return; }
  touched[lane][touched_count[lane]++] = {shared_address(pointer), (uint16_t)bytes, (uint16_t)kind};
}
// Passes that lanes take for their n-th access: the most words of one bank.
static int passes_of(int n, int first, int end) {
  uint32_t words[32][32];
  int in_bank[32] = {0}, most = 1;
  for (int lane = first; lane < end; ++lane) {
    if (touched_count[lane] <= n) continue;
    const Touched& own = touched[lane][n];
    for (uint32_t word = own.address / 4; word <= (own.address + own.bytes - 1) / 4; ++word) {
      const int bank = word % 32;
      bool known = false;
      for (int k = 0; k < in_bank[bank]; ++k) known |= words[bank][k] == word;
      if (!known) words[bank][in_bank[bank]++] = word;
      most = in_bank[bank] > most ? in_bank[bank] : most;
    }
  }
  return most;
}
// Looks at what the lanes of a warp have touched since the last time.
static void count_conflicts() {
  int most = 0;
  for (int lane = 0; lane < LANES; ++lane) most = touched_count[lane] > most ? touched_count[lane] : most;
  for (int n = 0; n < most; ++n) {
    int lane = 0;
    while (touched_count[lane] <= n) ++lane;
    const Touched& first = touched[lane][n];
    const int together = first.bytes > 8 ? 8 : first.bytes > 4 ? 16 : 32;
    int conflicts = 0;
    for (int start = 0; start < LANES; start += together) conflicts += passes_of(n, start, start + together) - 1;
    (first.kind == COPY ? emulated_copy_conflicts : emulated_access_conflicts) += conflicts;
    emulated_accesses += first.kind == ACCESS;
  }
  for (int lane = 0; lane < LANES; ++lane) touched_count[lane] = 0;
}

// What a pointer into shared memory becomes: its accesses are counted, taking an address is not one.
template <class T> struct SharedPointer {
  T* pointer;
  T& operator[](long n) const { touch(pointer + n, sizeof(T), ACCESS); return pointer[n]; }
  T& operator*() const { touch(pointer, sizeof(T), ACCESS); return *pointer; }
  SharedPointer operator+(long n) const { return {pointer + n}; }
  operator void*() const { return pointer; }
  operator const void*() const { return pointer; }
  template <class U> explicit operator U*() const { touch(pointer, sizeof(U), ACCESS); return (U*)pointer; }
};
// Holds NaNs until a block writes to it.
struct SharedArray { void* memory; size_t bytes; SharedArray* next; };
static SharedArray* shared_arrays;
static void forget(const SharedArray& array) { memset(array.memory, 0xff, array.bytes); }
static void forget_shared_memory() {
  for (SharedArray* array = shared_arrays; array; array = array->next) forget(*array);
}
template <class T, size_t N> struct Shared {
  alignas(1024) T elements[N];
  SharedArray own;
  Shared() : own{elements, sizeof(elements), shared_arrays} { shared_arrays = &own; forget(own); }
  T& operator[](long n) { return SharedPointer<T>{elements}[n]; }
  SharedPointer<T> operator+(long n) { return {elements + n}; }
  operator void*() { return elements; }
  operator const void*() { return elements; }
  template <class U> explicit operator U*() { return (U*)(SharedPointer<T>{elements}); }
};
