/* Included before every C++ file of llama.cpp. GCC 12's AMX intrinsics do not say that they read memory, but for
   8 bytes of the 64 of a configuration: stores that only they read are dropped, and the library crashes. Here
   they say so. */
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])(config)))
#undef _tile_loadd
#define _tile_loadd(tile, base, stride) EDGETLM_TILE_LOADD(tile, base, stride)
#define EDGETLM_TILE_LOADD(tile, base, stride)             \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile    \
                     :                                     \
                     : "r"((const void*)(base)), "r"((long)(stride)) : "memory")
#endif
