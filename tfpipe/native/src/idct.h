// The inverse DCT of two blocks of 8 x 8 at once, with AVX2.
//
// libjpeg-turbo transforms one block at a time, and waits for each of its steps. Here each
// half of a register holds a row of one of two blocks. The values are those of
// jidctint-avx2.asm, those of overflows included: an equal result of sums, differences and
// products in any order, as all of them keep their lowest 16 or 32 bits.
//
// The transform runs when an MCU has been read, and leaves its 64 pixels in the first half of
// each block. In place of its own transform, libjpeg then calls CopyPixels. Without AVX2
// nothing changes.
#ifndef TFPIPE_NATIVE_IDCT_H_
#define TFPIPE_NATIVE_IDCT_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "external/libjpeg_turbo/jpeglib.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

// The start of libjpeg's private object for the transform: its first two members.
struct jpeg_inverse_dct {
  void (*start_pass)(j_decompress_ptr info);
  void (*inverse_DCT[MAX_COMPONENTS])(j_decompress_ptr info, jpeg_component_info* component,
                                      JCOEFPTR block, JSAMPARRAY rows, JDIMENSION column);
};

namespace tfpipe {

// Two blocks of an MCU, and what their coefficients are multiplied with: eight values of the
// first one, eight of the second one, for each row.
struct BlockPair {
  int first, second;  // the same for a block without a partner
  int16_t factors[DCTSIZE][2][DCTSIZE];
};

struct BlockPairs {
  int count = 0;
  BlockPair pairs[(D_MAX_BLOCKS_IN_MCU + 1) / 2];
};

#if defined(__x86_64__) && defined(__GNUC__)

#define TFPIPE_AVX2 __attribute__((target("avx2")))
#define TFPIPE_AVX2_INLINE inline __attribute__((target("avx2"), always_inline))

inline bool HasPairs() { return __builtin_cpu_supports("avx2"); }

// Two factors for products of neighbours, which are then added.
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
  return {_mm256_madd_epi16(mixed.low, factors), _mm256_madd_epi16(mixed.high, factors)};
}

TFPIPE_AVX2_INLINE Wide operator+(Wide one, Wide other) {
  return {_mm256_add_epi32(one.low, other.low), _mm256_add_epi32(one.high, other.high)};
}

TFPIPE_AVX2_INLINE Wide operator-(Wide one, Wide other) {
  return {_mm256_sub_epi32(one.low, other.low), _mm256_sub_epi32(one.high, other.high)};
}

// Returns values times 2^13, plus what rounds the last shift.
template <int kShift>
TFPIPE_AVX2_INLINE Wide Raised(__m256i values) {
  const Wide wide = Mixed(_mm256_setzero_si256(), values);
  const __m256i half = _mm256_set1_epi32(1 << (kShift - 1));
  return {_mm256_add_epi32(_mm256_srai_epi32(wide.low, 3), half),
          _mm256_add_epi32(_mm256_srai_epi32(wide.high, 3), half)};
}

template <int kShift>
TFPIPE_AVX2_INLINE __m256i Lowered(Wide wide) {
  return _mm256_packs_epi32(_mm256_srai_epi32(wide.low, kShift),
                            _mm256_srai_epi32(wide.high, kShift));
}

// One pass along the columns: the factorization of jidctint.c. The numbers are its
// constants, times 2^13.
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
TFPIPE_AVX2_INLINE __m256i LoadRows(const JCOEF* first, const JCOEF* second, int row) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(second + 8 * row),
                             reinterpret_cast<const __m128i*>(first + 8 * row));
}

// A block that has coefficients in its first row only keeps the lowest 16 bits of the first
// pass; others are limited to 16 bits. Only products outside of 14 bits tell the two apart.
// Returns the first rows of two blocks with those bits.
TFPIPE_AVX2 static __m256i __attribute__((noinline)) Wrapped(const JCOEF* first,
                                                            const JCOEF* second,
                                                            __m256i row) {
  __m256i others = _mm256_setzero_si256();
  for (int i = 1; i < 8; ++i) others = _mm256_or_si256(others, LoadRows(first, second, i));
  const __m256i halves = _mm256_cmpeq_epi64(others, _mm256_setzero_si256());
  const __m256i alone = _mm256_and_si256(halves, _mm256_shuffle_epi32(halves, 0x4e));
  const __m256i wrapped = _mm256_srai_epi16(_mm256_slli_epi16(row, 2), 2);
  return _mm256_blendv_epi8(row, wrapped, alone);
}

// Writes the columns of both blocks as rows of pixels.
TFPIPE_AVX2_INLINE void StorePixels(const __m256i* columns, uint8_t* first, uint8_t* second) {
  const __m256i a = _mm256_packs_epi16(columns[0], columns[4]);
  const __m256i b = _mm256_packs_epi16(columns[1], columns[5]);
  const __m256i c = _mm256_packs_epi16(columns[2], columns[6]);
  const __m256i d = _mm256_packs_epi16(columns[3], columns[7]);
  const __m256i left02 = _mm256_unpacklo_epi8(a, c), right02 = _mm256_unpackhi_epi8(a, c);
  const __m256i left13 = _mm256_unpacklo_epi8(b, d), right13 = _mm256_unpackhi_epi8(b, d);
  const __m256i left[2] = {_mm256_unpacklo_epi8(left02, left13),
                           _mm256_unpackhi_epi8(left02, left13)};
  const __m256i right[2] = {_mm256_unpacklo_epi8(right02, right13),
                            _mm256_unpackhi_epi8(right02, right13)};
  const __m256i middle = _mm256_set1_epi8(-128);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i pixels = _mm256_xor_si256(
        i % 2 == 0 ? _mm256_unpacklo_epi32(left[i / 2], right[i / 2])
                   : _mm256_unpackhi_epi32(left[i / 2], right[i / 2]),
        middle);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(first + 16 * i),
                     _mm256_castsi256_si128(pixels));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(second + 16 * i),
                     _mm256_extracti128_si256(pixels, 1));
  }
}

// Puts the pixels of two blocks in the place of their coefficients.
TFPIPE_AVX2 static void TransformPair(const BlockPair& pair, JBLOCKROW* blocks) {
  JCOEF *first = *blocks[pair.first], *second = *blocks[pair.second];
  __m256i rows[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const auto* factors = reinterpret_cast<const __m256i*>(pair.factors[i]);
    rows[i] = _mm256_mullo_epi16(LoadRows(first, second, i), _mm256_loadu_si256(factors));
  }
  const __m256i least = _mm256_set1_epi16(-8192), most = _mm256_set1_epi16(8191);
  const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi16(rows[0], most),
                                          _mm256_cmpgt_epi16(least, rows[0]));
  if (__builtin_expect(!_mm256_testz_si256(outside, outside), 0)) {
    rows[0] = Wrapped(first, second, rows[0]);
  }
  Pass<11>(rows);
  Transpose(rows);
  Pass<18>(rows);
  StorePixels(rows, reinterpret_cast<uint8_t*>(first), reinterpret_cast<uint8_t*>(second));
}

#else

inline bool HasPairs() { return false; }
inline void TransformPair(const BlockPair&, JBLOCKROW*) {}

#endif

// Takes the place of libjpeg's transform: the pixels are there.
inline void CopyPixels(j_decompress_ptr, jpeg_component_info*, JCOEFPTR block,
                       JSAMPARRAY rows, JDIMENSION column) {
  const auto* pixels = reinterpret_cast<const uint8_t*>(block);
  for (int i = 0; i < DCTSIZE; ++i) memcpy(rows[i] + column, pixels + DCTSIZE * i, DCTSIZE);
}

// Pairs the blocks of an MCU that are decoded in full size, and puts CopyPixels in the place
// of libjpeg's transform for them. Decoding must have started.
inline void FillPairs(jpeg_decompress_struct* info, BlockPairs* pairs) {
  pairs->count = 0;
  if (!HasPairs()) return;
  int half = 0;
  for (int i = 0; i < info->blocks_in_MCU; ++i) {
    const jpeg_component_info& component = *info->cur_comp_info[info->MCU_membership[i]];
    if (component.DCT_scaled_size != DCTSIZE || component.quant_table == nullptr) continue;
    BlockPair* pair = &pairs->pairs[pairs->count];
    (half == 0 ? pair->first : pair->second) = i;
    pair->second = i;
    for (int row = 0; row < DCTSIZE; ++row) {
      const UINT16* factors = component.quant_table->quantval + DCTSIZE * row;
      for (int place = half; place < 2; ++place)
        memcpy(pair->factors[row][place], factors, sizeof(pair->factors[row][place]));
    }
    info->idct->inverse_DCT[component.component_index] = CopyPixels;
    pairs->count += half;
    half = 1 - half;
  }
  pairs->count += half;
}

inline void TransformPairs(const BlockPairs& pairs, JBLOCKROW* blocks) {
  for (int i = 0; i < pairs.count; ++i) TransformPair(pairs.pairs[i], blocks);
}

}  // namespace tfpipe

#endif
