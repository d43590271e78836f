// Shared memory, and how often the threads of a warp meet in one of its banks.
//
// There are 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared Memory"). Threads that touch different words
// of one bank at once are served one after the other. Accesses of 8 bytes are served by half warps, of 16 bytes by
// quarters. Accesses of the threads of a warp are one instruction where they are written at one place of the
// source, which numbers them, in the same turn of all loops around it; so threads that a condition leaves out do
// not shift the others. Places of copies (cp.async) are calls of functions that consist of one; others are numbered
// as they come.

// Executed by all warps of all blocks since the library was loaded: further passes that loads and stores took
// because threads met in a bank, and the same of copies (cp.async); accesses that were too many to look at.
extern "C" {
COUNTER long emulated_accesses, emulated_access_conflicts, emulated_copy_conflicts, emulated_not_counted;
}

// Shared memory has addresses of 32 bits: distances from a byte of this library, in whose data it lies.
alignas(1024) SHARED_STATE char shared_origin[1024];
static inline uint32_t shared_address(const void* pointer) {
  return (uint32_t)((const char*)pointer - shared_origin);
}
static inline char* shared_pointer(uint32_t address) { return shared_origin + (int32_t)address; }
static inline size_t __cvta_generic_to_shared(const void* pointer) { return shared_address(pointer); }

enum { MOST_TOUCHED = 1 << 14, MOST_PLACES = 1 << 14 };
// `turn`: of the loops around it; `next`: what its thread touched at the same place afterwards.
struct Touched { uint32_t address, turn; uint16_t bytes, next; };
struct Lane {
  Touched touched[MOST_TOUCHED];
  // Entries of each place: how many are not counted yet, the first of these, and the last one.
  uint16_t left[MOST_PLACES], first[MOST_PLACES], last[MOST_PLACES];
  int count, copies;
};
SHARED_STATE Lane lanes[LANES];
SHARED_STATE int used_places[MOST_PLACES], used_count;
SHARED_STATE bool is_used[MOST_PLACES], is_copy[MOST_PLACES];
// Turns of loops that each thread of a block has begun.
SHARED_STATE uint32_t turns_of[MOST_THREADS];
static inline void next_turn() { ++turns_of[current_thread]; }
static void touch(const void* pointer, int bytes, int place, bool copy = false) {
  Lane& own = lanes[current_thread % LANES];
  if (own.count == MOST_TOUCHED || place >= MOST_PLACES) { ++emulated_not_counted; return; }
  const uint16_t n = own.count++;
  const uint32_t turn = place ? turns_of[current_thread] : own.copies++;
  own.touched[n] = {shared_address(pointer), turn, (uint16_t)bytes, 0};
  if (own.left[place]++) own.touched[own.last[place]].next = n;
  else own.first[place] = n;
  own.last[place] = n;
  if (!is_used[place]) used_places[used_count++] = place;
  is_used[place] = true;
  is_copy[place] = copy;
}
// Passes that lanes take for one instruction: the most words of one bank.
static int passes_of(const Touched* const* together, int first, int end) {
  uint32_t words[32][32];
  int in_bank[32] = {0}, most = 1;
  for (int lane = first; lane < end; ++lane) {
    if (!together[lane]) continue;
    const Touched& own = *together[lane];
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
// Counts the earliest instruction of a place that is left; false if there is none.
static bool count_instruction(int place) {
  const Touched* together[LANES] = {nullptr};
  uint32_t turn = UINT32_MAX;
  for (int n = 0; n < LANES; ++n) {
    if (!lanes[n].left[place]) continue;
    together[n] = &lanes[n].touched[lanes[n].first[place]];
    turn = together[n]->turn < turn ? together[n]->turn : turn;
  }
  int bytes = 0;
  for (int n = 0; n < LANES; ++n) {
    if (!together[n]) continue;
    if (together[n]->turn != turn) { together[n] = nullptr; continue; }
    bytes = together[n]->bytes;
    --lanes[n].left[place];
    lanes[n].first[place] = together[n]->next;
  }
  if (!bytes) return false;
  const int at_once = bytes > 8 ? 8 : bytes > 4 ? 16 : 32;
  int conflicts = 0;
  for (int start = 0; start < LANES; start += at_once) conflicts += passes_of(together, start, start + at_once) - 1;
  (is_copy[place] ? emulated_copy_conflicts : emulated_access_conflicts) += conflicts;
  emulated_accesses += !is_copy[place];
  return true;
}
// Looks at what the lanes of a warp have touched since the last time.
static void count_conflicts() {
  for (int n = 0; n < used_count; ++n) {
    while (count_instruction(used_places[n])) {}
    is_used[used_places[n]] = false;
  }
  used_count = 0;
  for (Lane& lane : lanes) lane.count = lane.copies = 0;
}

// What a pointer into shared memory becomes: its accesses are counted, taking an address is not one.
template <class T> struct SharedPointer {
  T* pointer;
  int place;
  T& operator[](long n) const { touch(pointer + n, sizeof(T), place); return pointer[n]; }
  T& operator*() const { touch(pointer, sizeof(T), place); return *pointer; }
  SharedPointer operator+(long n) const { return {pointer + n, place}; }
  operator void*() const { return pointer; }
  operator const void*() const { return pointer; }
  template <class U> explicit operator U*() const { touch(pointer, sizeof(U), place); return (U*)pointer; }
};
// Holds NaNs until a block writes to it.
struct SharedArray { void* memory; size_t bytes; SharedArray* next; };
SHARED_STATE SharedArray* shared_arrays;
static void forget(const SharedArray& array) { memset(array.memory, 0xff, array.bytes); }
static void forget_shared_memory() {
  for (SharedArray* array = shared_arrays; array; array = array->next) forget(*array);
}
template <class T, size_t N> struct Shared {
  alignas(1024) T elements[N];
  SharedArray own;
  Shared() : own{elements, sizeof(elements), shared_arrays} { shared_arrays = &own; forget(own); }
  // As it is written at one place of the source.
  SharedPointer<T> operator()(int place) { return {elements, place}; }
};
