// The inverse DCT (ITU T.81, A.3.3 and F.2.1.5) of two blocks of 8 x 8 at once, with
// AVX2.
//
// libjpeg-turbo transforms a single block at a time, and waits for every step. Here
// each half of a register holds a row of one of two blocks. The pixels equal those of
// libjpeg-turbo's jidctint-avx2.asm, after overflows too.
#ifndef TFPIPE_NATIVE_IDCT_H_
#define TFPIPE_NATIVE_IDCT_H_

#include <stdint.h>
#include <stdio.h>

#include "external/libjpeg_turbo/jpeglib.h"

#include "platform.h"

namespace tfpipe {

// A block, the factors of its coefficients (T.81, A.3.4), and the eight rows and the
// first column of its pixels.
struct Block {
  JCOEF* coefficients;
  const UINT16* factors;
  JSAMPARRAY rows;
  JDIMENSION column;
};

#ifdef TFPIPE_AVX2

// Two factors: neighbours are multiplied with them, and the products added.
TFPIPE_AVX2_INLINE __m256i Factors(int first, int second) {
  return _mm256_set1_epi32(static_cast<int>(static_cast<uint32_t>(second) << 16 |
                                            (static_cast<uint32_t>(first) & 0xffff)));
}

// 32 bits for each of 16 values.
struct Wide {
  __m256i low, high;
};

TFPIPE_AVX2_INLINE Wide Mixed(__m256i first, __m256i second) {
  return {_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)};
}

TFPIPE_AVX2_INLINE Wide Times(Wide mixed, __m256i factors) {
  return {_mm256_madd_epi16(mixed.low, factors),
          _mm256_madd_epi16(mixed.high, factors)};
}

TFPIPE_AVX2_INLINE Wide operator+(Wide a, Wide b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

TFPIPE_AVX2_INLINE Wide operator-(Wide a, Wide b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

// Returns values times 2^13, plus 2^(kShift - 1) to round the later shift.
template <int kShift>
TFPIPE_AVX2_INLINE Wide Raised(__m256i values) {
  const Wide mixed = Mixed(values, _mm256_set1_epi16(1 << (kShift - 11)));
  return Times(mixed, Factors(1 << 13, 1 << 10));
}

template <int kShift>
TFPIPE_AVX2_INLINE __m256i Lowered(Wide wide) {
  return _mm256_packs_epi32(_mm256_srai_epi32(wide.low, kShift),
                            _mm256_srai_epi32(wide.high, kShift));
}

// A pass along the columns: the factorization of jidctint.c. The numbers are the
// constants of jidctint.c, times 2^13.
template <int kShift>
TFPIPE_AVX2_INLINE void Pass(__m256i* rows) {
  const Wide outer = Mixed(rows[2], rows[6]);
  const Wide even2 = Times(outer, Factors(4433, 4433 - 15137));
  const Wide even3 = Times(outer, Factors(4433 + 6270, 4433));
  const Wide even0 = Raised<kShift>(_mm256_add_epi16(rows[0], rows[4]));
  const Wide even1 = Raised<kShift>(_mm256_sub_epi16(rows[0], rows[4]));
  const Wide sums =
      Mixed(_mm256_add_epi16(rows[7], rows[3]), _mm256_add_epi16(rows[5], rows[1]));
  const Wide sum3 = Times(sums, Factors(9633 - 16069, 9633));
  const Wide sum4 = Times(sums, Factors(9633, 9633 - 3196));
  const Wide ends = Mixed(rows[7], rows[1]), middle = Mixed(rows[5], rows[3]);
  const Wide odd0 = Times(ends, Factors(2446 - 7373, -7373)) + sum3;
  const Wide odd3 = Times(ends, Factors(-7373, 12299 - 7373)) + sum4;
  const Wide odd1 = Times(middle, Factors(16819 - 20995, -20995)) + sum4;
  const Wide odd2 = Times(middle, Factors(-20995, 25172 - 20995)) + sum3;
  const Wide even[4] = {even0 + even3, even1 + even2, even1 - even2, even0 - even3};
  const Wide odd[4] = {odd3, odd2, odd1, odd0};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = Lowered<kShift>(even[i] + odd[i]);
    rows[7 - i] = Lowered<kShift>(even[i] - odd[i]);
  }
}

// Swaps rows and columns of both blocks.
TFPIPE_AVX2_INLINE void Transpose(__m256i* rows) {
  __m256i fours[8], pairs[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_epi16(rows[i], rows[i + 4]);
    pairs[2 * i + 1] = _mm256_unpackhi_epi16(rows[i], rows[i + 4]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    fours[2 * i] = _mm256_unpacklo_epi16(pairs[i], pairs[i + 4]);
    fours[2 * i + 1] = _mm256_unpackhi_epi16(pairs[i], pairs[i + 4]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[2 * i] = _mm256_unpacklo_epi16(fours[i], fours[i + 4]);
    rows[2 * i + 1] = _mm256_unpackhi_epi16(fours[i], fours[i + 4]);
  }
}

// Loads a row of each of two blocks.
template <typename Value>
TFPIPE_AVX2_INLINE __m256i LoadRows(const Value* first, const Value* second, int row) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(second + 8 * row),
                             reinterpret_cast<const __m128i*>(first + 8 * row));
}

// Returns the first rows of two blocks as libjpeg-turbo computes them:
//
//   coefficients in the first row only  the lowest 16 bits of the first pass
//   others                              the first pass, limited to 16 bits
//
// Only products outside of 14 bits differ.
TFPIPE_AVX2 static __m256i TFPIPE_NOINLINE Wrapped(const Block& first,
                                                   const Block& second, __m256i row) {
  __m256i others = _mm256_setzero_si256();
  for (int i = 1; i < 8; ++i) {
    others =
        _mm256_or_si256(others, LoadRows(first.coefficients, second.coefficients, i));
  }
  const __m256i halves = _mm256_cmpeq_epi64(others, _mm256_setzero_si256());
  const __m256i alone = _mm256_and_si256(halves, _mm256_shuffle_epi32(halves, 0x4e));
  const __m256i wrapped = _mm256_srai_epi16(_mm256_slli_epi16(row, 2), 2);
  return _mm256_blendv_epi8(row, wrapped, alone);
}

// Writes two rows of pixels.
TFPIPE_AVX2_INLINE void StoreRows(__m128i pixels, JSAMPARRAY rows, JDIMENSION column) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(rows[0] + column), pixels);
  _mm_storeh_pi(reinterpret_cast<__m64*>(rows[1] + column), _mm_castsi128_ps(pixels));
}

// Writes the columns of both blocks as rows of pixels, plus 128 (T.81, F.2.1.5). The
// blocks are copies, because the compiler cannot know whether a pixel is a part of a
// block.
TFPIPE_AVX2_INLINE void StorePixels(const __m256i* columns, Block first, Block second) {
  const __m256i a = _mm256_packs_epi16(columns[0], columns[4]);
  const __m256i b = _mm256_packs_epi16(columns[1], columns[5]);
  const __m256i c = _mm256_packs_epi16(columns[2], columns[6]);
  const __m256i d = _mm256_packs_epi16(columns[3], columns[7]);
  const __m256i left02 = _mm256_unpacklo_epi8(a, c),
                right02 = _mm256_unpackhi_epi8(a, c);
  const __m256i left13 = _mm256_unpacklo_epi8(b, d),
                right13 = _mm256_unpackhi_epi8(b, d);
  const __m256i left[2] = {_mm256_unpacklo_epi8(left02, left13),
                           _mm256_unpackhi_epi8(left02, left13)};
  const __m256i right[2] = {_mm256_unpacklo_epi8(right02, right13),
                            _mm256_unpackhi_epi8(right02, right13)};
  const __m256i middle = _mm256_set1_epi8(-128);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i pixels =
        _mm256_xor_si256(i % 2 == 0 ? _mm256_unpacklo_epi32(left[i / 2], right[i / 2])
                                    : _mm256_unpackhi_epi32(left[i / 2], right[i / 2]),
                         middle);
    StoreRows(_mm256_castsi256_si128(pixels), first.rows + 2 * i, first.column);
    StoreRows(_mm256_extracti128_si256(pixels, 1), second.rows + 2 * i, second.column);
  }
}

// Transforms two blocks, which may be the same block.
TFPIPE_AVX2 static void TransformPair(const Block& first, const Block& second) {
  __m256i rows[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm256_mullo_epi16(LoadRows(first.coefficients, second.coefficients, i),
                                 LoadRows(first.factors, second.factors, i));
  }
  const __m256i shifted = _mm256_add_epi16(rows[0], _mm256_set1_epi16(1 << 13));
  const __m256i outside = _mm256_set1_epi16(static_cast<int16_t>(0xc000));
  if (__builtin_expect(!_mm256_testz_si256(shifted, outside), 0)) {
    rows[0] = Wrapped(first, second, rows[0]);
  }
  Pass<11>(rows);
  Transpose(rows);
  Pass<18>(rows);
  StorePixels(rows, first, second);
}

#else

inline void TransformPair(const Block&, const Block&) {}

#endif

}  // namespace tfpipe

#endif
