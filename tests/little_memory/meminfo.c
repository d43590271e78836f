// Preloaded into an executor: another file stands in the place of /proc/meminfo.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* chosen(const char* path) {
  const char* other = getenv("TEST_MEMINFO");
  return path != NULL && other != NULL && strcmp(path, "/proc/meminfo") == 0 ? other : path;
}

FILE* fopen(const char* path, const char* mode) {
  FILE* (*next)(const char*, const char*) = (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, "fopen");
  return next(chosen(path), mode);
}

FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  int (*next)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
  return next(chosen(path), flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return open(path, flags, mode);
}
