/* Called by Unicorn when a block starts: counts how often each one does. Python would take a microsecond a call. */
#include <stdint.h>

typedef struct { uint64_t base, bytes, changed; uint32_t *runs, *sizes; } Counts;

void count_block(void *engine, uint64_t address, uint32_t size, Counts *counts) {
  uint64_t at = (address - counts->base) / 2;
  if (address < counts->base || 2 * at >= counts->bytes) return;
  if (counts->runs[at]++ && counts->sizes[at] != size) counts->changed++;
  counts->sizes[at] = size;
}
