// Whether functions for AVX2 can be compiled, and whether this processor runs them.
#ifndef TFPIPE_NATIVE_AVX2_H_
#define TFPIPE_NATIVE_AVX2_H_

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define TFPIPE_AVX2 __attribute__((target("avx2")))
#define TFPIPE_AVX2_INLINE inline __attribute__((target("avx2"), always_inline))

namespace tfpipe {

inline bool HasAvx2() { return __builtin_cpu_supports("avx2"); }

}  // namespace tfpipe

#else

namespace tfpipe {

inline bool HasAvx2() { return false; }

}  // namespace tfpipe

#endif

#endif
