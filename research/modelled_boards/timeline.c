/* Time of a kernel's blocks and accesses on a processor with caches, called by Unicorn's hooks.
 *
 * The clock `now` is that of dispatch. A block takes the cycles of its pipeline model, spread evenly over its
 * accesses. A load whose line is not there when the load is dispatched is outstanding; dispatch waits for it
 * when `window` more instructions have been dispatched (the reorder buffer is full, or an in-order core uses the
 * value), or when all `misses` are outstanding. So misses within a window overlap (Karkhanis and Smith, "A
 * first-order superscalar processor model", ISCA 2004). Stores wait in a buffer. Each level and the memory
 * transfer a line in so many cycles, one after the other. Caches are write-back, allocate on writes, and
 * replace the least recently used line. The prefetcher follows streams of lines at a constant distance within
 * a page.
 *
 * The structures are mirrored in timeline.py.
 */
#include <stdint.h>
#include <string.h>

#define MOST_LEVELS 3
#define MOST_MISSES 64
#define MOST_STREAMS 32
#define MOST_PAGES 64
#define FARTHEST 16
#define WRITE 17
#define NEVER UINT64_MAX

typedef struct { uint64_t tag, used; double ready; uint32_t dirty, prefetched; } Line;
typedef struct { uint64_t sets, ways; double latency, transfer, free; Line *lines; uint64_t hits, misses; } Level;
typedef struct { uint64_t limit; double ready; } Miss;
typedef struct { int64_t last, stride, ahead; uint64_t used; uint32_t seen, unused; } Stream;
typedef struct { uint64_t page, used; } Page;

typedef struct {
  uint64_t base, bytes;
  const double *cycles;
  const uint32_t *instructions;
  uint32_t *accesses;
  uint64_t window, misses, levels, line_bits, page_bits, pages, streams, distance, confidence;
  double memory_latency, memory_transfer, translation, walk;
  double now, memory_free, left, step, waited;
  uint64_t position, block, seen, gap, rest, clock, next_limit, outstanding, lines_read, lines_written, prefetches;
  Level level[MOST_LEVELS];
  Level translations;
  Miss miss[MOST_MISSES];
  Stream stream[MOST_STREAMS];
  Page page[MOST_PAGES];
  uint64_t last_line, last_page;
  Line *last;
} Timeline;

/* ---- blocks that are executed, before their cycles are known ---- */

typedef struct { uint64_t base, bytes; uint64_t *runs; uint32_t *sizes; } Counts;

void count_block(void *engine, uint64_t address, uint32_t size, Counts *counts) {
  uint64_t at = (address - counts->base) / 2;
  if (2 * at >= counts->bytes) return;
  counts->runs[at]++;
  counts->sizes[at] = size;
}

/* ---- what dispatch waits for ---- */

static void wait_until(Timeline *t, double ready) {
  if (ready > t->now) {
    t->waited += ready - t->now;
    t->now = ready;
  }
}

static void retire(Timeline *t) {
  uint64_t next = NEVER;
  for (uint64_t i = 0; i < t->outstanding;) {
    if (t->miss[i].limit <= t->position) wait_until(t, t->miss[i].ready);
    if (t->miss[i].ready <= t->now) {
      t->miss[i] = t->miss[--t->outstanding];
      continue;
    }
    if (t->miss[i].limit < next) next = t->miss[i].limit;
    i++;
  }
  t->next_limit = next;
}

/* A miss can begin when fewer than `misses` are outstanding. */
static void await_place(Timeline *t) {
  if (t->outstanding < t->misses) return;
  double first = t->miss[0].ready;
  for (uint64_t i = 1; i < t->outstanding; i++)
    if (t->miss[i].ready < first) first = t->miss[i].ready;
  wait_until(t, first);
  retire(t);
}

static void outstanding(Timeline *t, double ready, int write) {
  if (ready <= t->now) return;
  await_place(t);
  if (ready <= t->now) return;
  Miss *m = &t->miss[t->outstanding++];
  m->limit = write ? NEVER : t->position + t->window;
  m->ready = ready;
  if (m->limit < t->next_limit) t->next_limit = m->limit;
}

/* ---- caches ---- */

static Line *find(Level *level, uint64_t line) {
  Line *set = level->lines + (line % level->sets) * level->ways;
  for (uint64_t way = 0; way < level->ways; way++)
    if (set[way].tag == line + 1) return &set[way];
  return 0;
}

static void write_back(Timeline *t, uint64_t k, uint64_t line) {
  if (k < t->levels) {
    Line *below = find(&t->level[k], line);
    if (below) {
      below->dirty = 1;
      if (t->level[k].free < t->now) t->level[k].free = t->now;
      t->level[k].free += t->level[k].transfer;
      return;
    }
  }
  if (t->memory_free < t->now) t->memory_free = t->now;
  t->memory_free += t->memory_transfer;
  t->lines_written++;
}

static Line *insert(Timeline *t, uint64_t k, uint64_t line, double ready) {
  Level *level = &t->level[k];
  Line *set = level->lines + (line % level->sets) * level->ways, *oldest = set;
  for (uint64_t way = 0; way < level->ways; way++)
    if (set[way].used < oldest->used) oldest = &set[way];
  if (oldest->tag && oldest->dirty) write_back(t, k + 1, oldest->tag - 1);
  oldest->tag = line + 1;
  oldest->used = ++t->clock;
  oldest->ready = ready;
  oldest->dirty = oldest->prefetched = 0;
  return oldest;
}

/* When a line from level k or beyond is there. */
static double fetch(Timeline *t, uint64_t k, uint64_t line) {
  double begin = t->now;
  if (k == t->levels) {
    if (t->memory_free > begin) begin = t->memory_free;
    t->memory_free = begin + t->memory_transfer;
    t->lines_read++;
    return begin + t->memory_latency;
  }
  Level *level = &t->level[k];
  Line *found = find(level, line);
  if (!found) {
    level->misses++;
    double ready = fetch(t, k + 1, line);
    insert(t, k, line, ready);
    return ready;
  }
  level->hits++;
  found->used = ++t->clock;
  if (found->ready > begin) begin = found->ready;
  if (level->free > begin) begin = level->free;
  level->free = begin + level->transfer;
  return begin + level->latency;
}

/* ---- prefetching ---- */

static void follow(Timeline *t, uint64_t line) {
  Stream *nearest = 0, *oldest = t->stream;
  int64_t least = FARTHEST + 1, here = (int64_t)line;
  for (uint64_t i = 0; i < t->streams; i++) {
    Stream *s = &t->stream[i];
    int64_t apart = here - s->last;
    if (apart < 0) apart = -apart;
    if (s->used && apart && apart < least) {
      least = apart;
      nearest = s;
    }
    if (s->used < oldest->used) oldest = s;
  }
  if (!nearest) {
    if (t->streams) *oldest = (Stream){here, 0, here, ++t->clock, 0, 0};
    return;
  }
  int64_t stride = here - nearest->last;
  if (stride != nearest->stride) {
    nearest->stride = stride;
    nearest->seen = 0;
    nearest->ahead = here;
  }
  nearest->last = here;
  nearest->used = ++t->clock;
  if (++nearest->seen < t->confidence) return;
  uint64_t in_page = t->page_bits - t->line_bits;
  int64_t farthest = here + stride * (int64_t)t->distance;
  int64_t next = (stride > 0 ? nearest->ahead > here : nearest->ahead < here) ? nearest->ahead : here;
  while (stride > 0 ? next + stride <= farthest : next + stride >= farthest) {
    next += stride;
    if (next < 0 || (uint64_t)next >> in_page != line >> in_page) break;
    nearest->ahead = next;
    if (find(&t->level[0], (uint64_t)next)) continue;
    t->prefetches++;
    double ready = fetch(t, 1, (uint64_t)next);
    insert(t, 0, (uint64_t)next, ready)->prefetched = 1;
  }
}

/* ---- accesses ---- */

static void translate(Timeline *t, uint64_t page) {
  if (page == t->last_page) return;
  t->last_page = page;
  Page *oldest = t->page;
  for (uint64_t i = 0; i < t->pages; i++) {
    if (t->page[i].page == page + 1) {
      t->page[i].used = ++t->clock;
      return;
    }
    if (t->page[i].used < oldest->used) oldest = &t->page[i];
  }
  *oldest = (Page){page + 1, ++t->clock};
  double cost = t->translation;
  Line *known = find(&t->translations, page);
  if (!known) {
    cost += t->walk;
    Line *set = t->translations.lines + (page % t->translations.sets) * t->translations.ways;
    known = set;
    for (uint64_t way = 0; way < t->translations.ways; way++)
      if (set[way].used < known->used) known = &set[way];
    known->tag = page + 1;
  }
  known->used = ++t->clock;
  outstanding(t, t->now + cost, 0);
}

static void touch(Timeline *t, uint64_t line, int write) {
  if (line == t->last_line && t->last && t->last->tag == line + 1) {
    t->last->dirty |= write;
    if (t->last->ready > t->now) outstanding(t, t->last->ready, write);
    return;
  }
  translate(t, line >> (t->page_bits - t->line_bits));
  Line *found = find(&t->level[0], line);
  int trains = !found || found->prefetched;
  if (found) {
    t->level[0].hits++;
    found->used = ++t->clock;
    found->prefetched = 0;
  } else {
    t->level[0].misses++;
    await_place(t);
    found = insert(t, 0, line, fetch(t, 1, line));
  }
  found->dirty |= write;
  outstanding(t, found->ready, write);
  if (trains) follow(t, line);
  t->last_line = line;
  t->last = found;
}

static void end_block(Timeline *t) {
  if (t->block == NEVER) return;
  t->now += t->left;
  t->position += t->rest;
  t->accesses[t->block] = t->seen;
  t->block = NEVER;
  if (t->position >= t->next_limit) retire(t);
}

void begin_block(void *engine, uint64_t address, uint32_t size, Timeline *t) {
  uint64_t at = (address - t->base) / 2;
  end_block(t);
  if (2 * at >= t->bytes) return;
  uint64_t parts = t->accesses[at] + 1;
  t->block = at;
  t->left = t->cycles[at];
  t->step = t->left / parts;
  t->rest = t->instructions[at];
  t->gap = t->rest / parts;
  t->seen = 0;
}

void access_data(void *engine, int kind, uint64_t address, int size, int64_t value, Timeline *t) {
  if (t->block == NEVER) return;
  t->seen++;
  if (t->left >= t->step) {
    t->now += t->step;
    t->left -= t->step;
  }
  if (t->rest >= t->gap) {
    t->position += t->gap;
    t->rest -= t->gap;
  }
  if (t->position >= t->next_limit) retire(t);
  uint64_t first = address >> t->line_bits, last = (address + (uint64_t)size - 1) >> t->line_bits;
  touch(t, first, kind == WRITE);
  if (last != first) touch(t, last, kind == WRITE);
}

/* Data that another kernel has just written, from the first line to the last; `restart` follows. */
void produce(Timeline *t, uint64_t address, uint64_t bytes) {
  uint64_t last = (address + bytes - 1) >> t->line_bits;
  for (uint64_t line = address >> t->line_bits; bytes && line <= last; line++) touch(t, line, 1);
}

/* The end of the kernel: all that is outstanding has to arrive. */
void finish(Timeline *t) {
  end_block(t);
  for (uint64_t i = 0; i < t->outstanding; i++) wait_until(t, t->miss[i].ready);
  t->outstanding = 0;
  t->next_limit = NEVER;
  wait_until(t, t->memory_free);
}

/* The clock begins anew; caches keep their lines, all of which are there. */
void restart(Timeline *t) {
  for (uint64_t k = 0; k < t->levels; k++) {
    t->level[k].free = 0;
    for (uint64_t i = 0; i < t->level[k].sets * t->level[k].ways; i++) t->level[k].lines[i].ready = 0;
  }
  t->now = t->waited = t->memory_free = 0;
}
