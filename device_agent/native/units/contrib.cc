// What some operators of compiled models call: sorting and random numbers.
#include <runtime/extra/contrib/random/random.cc>
#include <runtime/extra/contrib/sort/sort.cc>
