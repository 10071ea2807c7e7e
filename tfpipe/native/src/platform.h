// Words for the compiler, the order of bytes, and the processor's AVX2.
#ifndef TFPIPE_NATIVE_PLATFORM_H_
#define TFPIPE_NATIVE_PLATFORM_H_

#include <stdint.h>

#define TFPIPE_INLINE inline __attribute__((always_inline))
#define TFPIPE_NOINLINE __attribute__((noinline))
#define TFPIPE_RARE(condition) __builtin_expect(!!(condition), 0)

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TFPIPE_AVX2 __attribute__((target("avx2")))
#define TFPIPE_AVX2_INLINE inline __attribute__((target("avx2"), always_inline))
#endif

namespace tfpipe {

// Returns whether a function marked TFPIPE_AVX2 exists and may be called.
inline bool HasAvx2() {
#ifdef TFPIPE_AVX2
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

// Returns a number whose first byte in memory becomes the highest byte, or the reverse.
TFPIPE_INLINE uint64_t ToBigEndian(uint64_t number) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  return __builtin_bswap64(number);
#else
  return number;
#endif
}

}  // namespace tfpipe

#endif
