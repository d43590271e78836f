/* What compiled code calls of a C library, for programs that have none. `volatile` keeps compilers from making calls
 * of these functions out of their own loops. */
#include <stddef.h>

void *memset(void *to, int value, size_t count) {
  for (volatile char *p = to; count--; ++p) *p = (char)value;
  return to;
}

void *memmove(void *to, const void *from, size_t count) {
  volatile char *d = to;
  const volatile char *s = from;
  if (d < s) { while (count--) *d++ = *s++; } else { while (count--) d[count] = s[count]; }
  return to;
}

void *memcpy(void *to, const void *from, size_t count) { return memmove(to, from, count); }
