// Stands where a library starts its parallel loops, and notes when each part of a loop begins and ends.
//
// Given to a library in place of the runtime's TVMBackendParallelLaunch, which it calls.

#include <stdint.h>
#include <time.h>

enum { MOST_PARTS = 32, MOST_LOOPS = 4096 };

typedef struct {
  void* sync_handle;
  int32_t parts;
} Group;

typedef int (*Part)(int number, Group* group, void* data);
typedef int (*Launch)(Part part, void* data, int parts);

typedef struct {
  int64_t begin, end;
  int64_t parts;
  int64_t part_begin[MOST_PARTS], part_end[MOST_PARTS];
} Loop;

typedef struct {
  Part part;
  void* data;
  Loop* loop;
} Timed;

// Set by the caller: the runtime's function, and whether the calling thread computes all of each loop.
Launch start_loop;
int32_t alone;
// Of the loops since the caller set it to 0; those beyond the table are counted and not noted.
int64_t loops;
Loop table[MOST_LOOPS];

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int run_part(int number, Group* group, void* data) {
  Timed* timed = data;
  Loop* loop = timed->loop;
  if (number == 0) loop->parts = group->parts;
  if (number < MOST_PARTS) loop->part_begin[number] = now();
  const int code = timed->part(number, group, timed->data);
  if (number < MOST_PARTS) loop->part_end[number] = now();
  return code;
}

int timed_launch(Part part, void* data, int parts) {
  Loop* loop = &table[loops < MOST_LOOPS ? loops : MOST_LOOPS - 1];
  Timed timed = {part, data, loop};
  Group one = {0, 1};
  loop->begin = now();
  const int code = alone ? run_part(0, &one, &timed) : start_loop(run_part, &timed, parts);
  loop->end = now();
  ++loops;
  return code;
}
