// PTX instructions with the semantics of the PTX ISA (version 8.7, chapters 9.7.9 and 9.7.14): products of a
// warp's matrices, loads of matrices, and copies that arrive late.
//
// A copy by cp.async takes effect as late as PTX allows, when its thread waits for its group; until then its
// destination holds NaNs. So a wait or a barrier that is missing gives wrong numbers here.

// Executed by all warps of all blocks since the library was loaded: products, their multiply-adds, loads of 8x8 matrices, and further
// passes that these took because rows shared banks.
extern "C" {
COUNTER long emulated_products, emulated_multiply_adds, emulated_matrix_loads, emulated_load_conflicts;
}

static inline uint32_t bits(float v) { uint32_t b; memcpy(&b, &v, 4); return b; }
static inline uint32_t bits(uint32_t v) { return v; }
static inline uint32_t bits(int v) { return (uint32_t)v; }
static inline uint32_t bits(half2 v) { uint32_t b; memcpy(&b, &v, 4); return b; }
static inline uint64_t bits(uint64_t v) { return v; }
static inline uint64_t bits(const void* v) { return (uint64_t)v; }
template <class T> static inline void put(T& to, uint32_t v) {
  static_assert(sizeof(T) == 4, "a register of 32 bits");
  memcpy(&to, &v, 4);
}
static inline float of_half(uint16_t b) { half v; memcpy(&v, &b, 2); return (float)v; }
static inline float of_bfloat(uint16_t b) { uint32_t w = (uint32_t)b << 16; float v; memcpy(&v, &w, 4); return v; }

// dp4a: adds the products of four bytes each, with signs or without.
static uint32_t dot_of_bytes(int left_signed, int right_signed, uint32_t left, uint32_t right, uint32_t before) {
  int32_t sum = (int32_t)before;
  for (int part = 0; part < 32; part += 8) {
    const int32_t a = left_signed ? (int8_t)(left >> part) : (uint8_t)(left >> part);
    const int32_t b = right_signed ? (int8_t)(right >> part) : (uint8_t)(right >> part);
    sum += a * b;
  }
  return (uint32_t)sum;
}

// fma.rn.f16x2: multiplies and adds pairs of halves, each rounded once.
static uint32_t multiply_pairs(uint32_t left, uint32_t right, uint32_t before) {
  uint32_t found = 0;
  for (int part = 0; part < 32; part += 16) {
    const double product = (double)of_half(left >> part) * of_half(right >> part);
    const half rounded = (half)(product + of_half(before >> part));
    found |= (uint32_t)__half_as_ushort(rounded) << part;
  }
  return found;
}
// Instructions on pairs of halves: each result is rounded once; a greatest or least is NaN where an operand is
// (`.NaN`), or the other operand.
template <class Operation>
static uint32_t of_pairs(uint32_t left, uint32_t right, Operation operation) {
  uint32_t found = 0;
  for (int part = 0; part < 32; part += 16) {
    const half rounded = (half)operation((double)of_half(left >> part), (double)of_half(right >> part));
    found |= (uint32_t)__half_as_ushort(rounded) << part;
  }
  return found;
}
static uint32_t add_pairs(uint32_t l, uint32_t r) { return of_pairs(l, r, [](double a, double b) { return a + b; }); }
static uint32_t subtract_pairs(uint32_t l, uint32_t r) {
  return of_pairs(l, r, [](double a, double b) { return a - b; });
}
static uint32_t product_of_pairs(uint32_t l, uint32_t r) {
  return of_pairs(l, r, [](double a, double b) { return a * b; });
}
static uint32_t greatest_of_pairs(uint32_t l, uint32_t r) { return of_pairs(l, r, (double (*)(double, double))fmax); }
static uint32_t least_of_pairs(uint32_t l, uint32_t r) { return of_pairs(l, r, (double (*)(double, double))fmin); }
static uint32_t greatest_or_nan(uint32_t l, uint32_t r) {
  return of_pairs(l, r, [](double a, double b) { return a != a || b != b ? NAN : fmax(a, b); });
}
static uint32_t least_or_nan(uint32_t l, uint32_t r) {
  return of_pairs(l, r, [](double a, double b) { return a != a || b != b ? NAN : fmin(a, b); });
}
static float greatest_number_or_nan(float a, float b) { return a != a || b != b ? NAN : fmaxf(a, b); }
static float least_number_or_nan(float a, float b) { return a != a || b != b ? NAN : fminf(a, b); }
// prmt: each byte of the result is one of the eight of both operands, or the sign of one.
static uint32_t permuted_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = (uint64_t)high << 32 | low;
  uint32_t found = 0;
  for (int part = 0; part < 4; ++part) {
    const uint32_t chosen = selector >> 4 * part & 15;
    uint8_t byte = (uint8_t)(bytes >> 8 * (chosen & 7));
    if (chosen & 8) byte = byte & 0x80 ? 0xff : 0;
    found |= (uint32_t)byte << 8 * part;
  }
  return found;
}

// ex2.approx.ftz.f32: a power below the least normal number is zero.
static float power_of_two(float exponent) { return exponent < -126.0f ? 0.0f : exp2f(exponent); }

enum { F32, F16, BF16, S32, S8, U8 };
struct Product {
  int rows, columns, depth, sum, left, right;  // sizes and types
  uint32_t a[4], b[4], c[4], d[4];
};
static int per_register(int type) { return type == F16 || type == BF16 ? 2 : type == S8 || type == U8 ? 4 : 1; }
static double element(int type, uint32_t word, int part) {
  switch (type) {
    case F32: { float v; memcpy(&v, &word, 4); return v; }
    case S32: return (int32_t)word;
    case F16: return of_half((uint16_t)(word >> 16 * part));
    case BF16: return of_bfloat((uint16_t)(word >> 16 * part));
    case S8: return (int8_t)(word >> 8 * part);
    default: return (uint8_t)(word >> 8 * part);
  }
}
// Where element `part` of register `number` of a lane lies. Registers hold `packed` neighbours: of A in a row,
// then 8 rows down, then across to the other half of the depth; of B down a column.
static void place_in_a(int lane, int number, int part, int packed, int* row, int* depth) {
  *row = lane / 4 + number % 2 * 8;
  *depth = lane % 4 * packed + part + number / 2 * 4 * packed;
}
static void place_in_b(int lane, int number, int part, int packed, int* depth, int* column) {
  *column = lane / 4;
  *depth = lane % 4 * packed + part + number * 4 * packed;
}
static void product_of_warp(int first) {
  static double a[16][32], b[32][8], c[16][8];
  const Product& shape = *(Product*)threads_of_block[first].operands;
  const int of_a = per_register(shape.left), of_b = per_register(shape.right), of_c = per_register(shape.sum);
  for (int lane = 0; lane < LANES; ++lane) {
    const Product& own = *(Product*)threads_of_block[first + lane].operands;
    int row, depth, column;
    for (int n = 0; n < 16 * shape.depth / LANES / of_a; ++n)
      for (int part = 0; part < of_a; ++part) {
        place_in_a(lane, n, part, of_a, &row, &depth);
        a[row][depth] = element(shape.left, own.a[n], part);
      }
    for (int n = 0; n < 8 * shape.depth / LANES / of_b; ++n)
      for (int part = 0; part < of_b; ++part) {
        place_in_b(lane, n, part, of_b, &depth, &column);
        b[depth][column] = element(shape.right, own.b[n], part);
      }
    for (int n = 0; n < 4; ++n)
      c[lane / 4 + n / 2 * 8][lane % 4 * 2 + n % 2] = element(shape.sum, own.c[n / of_c], n % of_c);
  }
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int depth = 0; depth < shape.depth; ++depth) c[row][column] += a[row][depth] * b[depth][column];
  for (int lane = 0; lane < LANES; ++lane) {
    Product& own = *(Product*)threads_of_block[first + lane].operands;
    for (int n = 0; n < 4; ++n) {
      const double sum = c[lane / 4 + n / 2 * 8][lane % 4 * 2 + n % 2];
      if (shape.sum == F16) {
        const half rounded = (half)sum;
        memcpy((char*)own.d + 2 * n, &rounded, 2);
      } else if (shape.sum == F32) {
        const float rounded = (float)sum;
        memcpy(&own.d[n], &rounded, 4);
      } else {
        own.d[n] = (uint32_t)(int64_t)sum;
      }
    }
  }
  ++emulated_products;
  emulated_multiply_adds += 16 * 8 * shape.depth;
}

struct MatrixLoad {
  int count, transposed;  // 8x8 matrices of 16 bits; whether rows become columns
  uint32_t address, to[4];
};
static void load_of_warp(int first) {
  const MatrixLoad shape = *(MatrixLoad*)threads_of_block[first].operands;
  for (int matrix = 0; matrix < shape.count; ++matrix) {
    uint16_t values[8][8];
    int in_bank[8] = {0}, passes = 1;
    for (int row = 0; row < 8; ++row) {
      const uint32_t address = ((MatrixLoad*)threads_of_block[first + matrix * 8 + row].operands)->address;
      if (address % 16) { failure = MISALIGNED; return; }
      memcpy(values[row], shared_pointer(address), 16);
      // 32 banks of 4 bytes: a row takes four neighbouring ones.
      const int taken = ++in_bank[address / 16 % 8];
      passes = taken > passes ? taken : passes;
    }
    ++emulated_matrix_loads;
    emulated_load_conflicts += passes - 1;
    for (int lane = 0; lane < LANES; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2;
      const uint16_t low = shape.transposed ? values[column][row] : values[row][column];
      const uint16_t high = shape.transposed ? values[column + 1][row] : values[row][column + 1];
      ((MatrixLoad*)threads_of_block[first + lane].operands)->to[matrix] = low | (uint32_t)high << 16;
    }
  }
}

enum { MOST_COPIES = 1024, MOST_GROUPS = 64 };
struct Copy { char* to; const char* from; int bytes, given; };
struct Copies {
  Copy copies[MOST_COPIES];
  int count, ends[MOST_GROUPS], groups;
};
SHARED_STATE Copies copies_of[MOST_THREADS];
// Of the function that is called next; 0 where copies are written without one.
SHARED_STATE int copy_place;
// Copies `bytes` of which `given` are read and the rest are zero.
static void copy_later(uint32_t to, uint64_t from, int bytes, int given) {
  Copies& own = copies_of[current_thread];
  if (to % bytes || from % bytes) return fail(MISALIGNED);
  if (own.count == MOST_COPIES || given > bytes || given < 0) return fail(OUT_OF_RANGE);
  char* pointer = shared_pointer(to);
  memset(pointer, 0xff, bytes);
  own.copies[own.count++] = {pointer, (const char*)from, bytes, given};
  touch(pointer, bytes, copy_place, true);
}
static void commit_copies() {
  Copies& own = copies_of[current_thread];
  if (own.groups == MOST_GROUPS) return fail(OUT_OF_RANGE);
  own.ends[own.groups++] = own.count;
}
static void finish_copies(int end) {
  Copies& own = copies_of[current_thread];
  for (int n = 0; n < end; ++n) {
    const Copy& copy = own.copies[n];
    memset(copy.to, 0, copy.bytes);
    if (copy.given) memcpy(copy.to, copy.from, copy.given);
  }
  memmove(own.copies, own.copies + end, (own.count - end) * sizeof(Copy));
  own.count -= end;
}
// Waits until at most `pending` groups have not arrived.
static void wait_for_copies(int pending) {
  Copies& own = copies_of[current_thread];
  const int done = own.groups - pending;
  if (done <= 0) return;
  const int end = own.ends[done - 1];
  finish_copies(end);
  for (int n = done; n < own.groups; ++n) own.ends[n - done] = own.ends[n] - end;
  own.groups = pending;
}
static void wait_for_all_copies() {
  finish_copies(copies_of[current_thread].count);
  copies_of[current_thread].groups = 0;
}
