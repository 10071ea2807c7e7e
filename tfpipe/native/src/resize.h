// Resizes rows of pixels: bilinear, without smoothing, as TensorFlow's ResizeBilinear
// with half-pixel centers; the same arithmetic in the same order.
#ifndef TFPIPE_NATIVE_RESIZE_H_
#define TFPIPE_NATIVE_RESIZE_H_

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "platform.h"

// A second copy of the hot loops for AVX2, chosen when the library is loaded. The
// compiler vectorizes plain loops: for SSE2 without AVX2, for NEON on Arm.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define TFPIPE_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TFPIPE_CLONES
#endif

namespace tfpipe {

enum class Pixel { kUint8, kFloat32, kBfloat16 };

// The two input pixels around an output pixel along one axis, and how far the output
// pixel is from the lower to the upper one.
struct Step {
  int lower, upper;
  float fraction;
};

constexpr int kDepth = 4;  // bytes of a decoded pixel, of which the last is unused

// Two neighbouring columns of the result: for each column the first byte of the left
// input pixel in a row, and for each byte of a pixel the fraction.
struct Columns {
  int left[2];
  float fractions[2 * kDepth];
};

// The plan to resize a row along its columns, and memory for the work.
struct Across {
  std::vector<Step> steps;
  std::vector<Columns> columns;
  bool swapped;  // whether the right input pixel is the lower one
  std::vector<float> values;
};

// Half-pixel centers, without smoothing, as compute_interpolation_weights in
// TensorFlow's image_resizer_state.h and resize_bilinear_op.cc.
inline void FillSteps(int from, int to, std::vector<Step>* steps) {
  steps->resize(to);
  const float scale = from / static_cast<float>(to);
  for (int i = 0; i < to; ++i) {
    const float at = (static_cast<float>(i) + 0.5f) * scale - 0.5f;
    const float floor = std::floor(at);
    (*steps)[i] = {std::max(static_cast<int>(floor), 0),
                   std::min(static_cast<int>(std::ceil(at)), from - 1), at - floor};
  }
}

// Fills the columns, right to left for a mirrored image. As in the stock path, uint8
// images are mirrored after the resize and others before: the order decides about the
// last bits.
inline void FillColumns(int from, int to, bool flip, Pixel pixel, Across* across) {
  std::vector<Step>* steps = &across->steps;
  FillSteps(from, to, steps);
  if (flip && pixel == Pixel::kUint8) std::reverse(steps->begin(), steps->end());
  across->swapped = flip && pixel != Pixel::kUint8;
  if (steps->size() % 2 > 0) steps->push_back(steps->back());
  across->values.resize(static_cast<size_t>(kDepth) * (static_cast<size_t>(from) + 1));
  across->columns.resize(steps->size() / 2);
  for (size_t i = 0; i < steps->size(); ++i) {
    const Step& step = (*steps)[i];
    const bool same = step.lower == step.upper;
    // If both pixels are the same, only the left pixel counts.
    const float fraction = same ? across->swapped : step.fraction;
    Columns* two = &across->columns[i / 2];
    two->left[i % 2] = kDepth * (across->swapped ? from - 1 - step.upper : step.lower);
    std::fill_n(two->fractions + kDepth * (i % 2), kDepth, fraction);
  }
}

// Writes four values at once: the three of a pixel, and the first value of the next
// pixel, which the next store overwrites. The buffers have room for the fourth value.
typedef float Floats __attribute__((vector_size(16), aligned(4), may_alias));

inline Floats Load(const float* from) { return *reinterpret_cast<const Floats*>(from); }

// Resizes a decoded row along its columns.
inline void ResizeRow(const uint8_t* line, int count, const Across& across,
                      float* __restrict values, float* __restrict row) {
  for (int i = 0; i < kDepth * count; ++i) values[i] = line[i];
  const int lower = across.swapped ? kDepth : 0, upper = kDepth - lower;
  for (const Columns& two : across.columns) {
    for (int i = 0; i < 2; ++i, row += 3) {
      const Floats low = Load(values + two.left[i] + lower);
      const Floats high = Load(values + two.left[i] + upper);
      *reinterpret_cast<Floats*>(row) = low + (high - low) * two.fractions[kDepth * i];
    }
  }
}

#ifdef TFPIPE_AVX2
// Returns two neighbouring pixels as numbers.
TFPIPE_AVX2_INLINE __m256 TwoPixels(const uint8_t* pixels) {
  const auto* bytes = reinterpret_cast<const __m128i*>(pixels);
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes)));
}

// Resizes a decoded row, two columns at a time.
template <bool kSwapped>
TFPIPE_AVX2 static void ResizeRowFast(const uint8_t* line,
                                      const std::vector<Columns>& columns,
                                      float* __restrict row) {
  for (const Columns& two : columns) {
    const __m256 first = TwoPixels(line + two.left[0]);
    const __m256 second = TwoPixels(line + two.left[1]);
    const __m256 left = _mm256_permute2f128_ps(first, second, 0x20);
    const __m256 right = _mm256_permute2f128_ps(first, second, 0x31);
    const __m256 lower = kSwapped ? right : left, upper = kSwapped ? left : right;
    const __m256 mixed = _mm256_add_ps(
        lower,
        _mm256_mul_ps(_mm256_sub_ps(upper, lower), _mm256_loadu_ps(two.fractions)));
    _mm_storeu_ps(row, _mm256_castps256_ps128(mixed));
    _mm_storeu_ps(row + 3, _mm256_extractf128_ps(mixed, 1));
    row += 6;
  }
}
#endif

// Resizes a decoded row in the fastest way of this processor.
inline void Resize(const uint8_t* line, int count, float* row, Across* across) {
#ifdef TFPIPE_AVX2
  if (HasAvx2()) {
    return across->swapped ? ResizeRowFast<true>(line, across->columns, row)
                           : ResizeRowFast<false>(line, across->columns, row);
  }
#endif
  ResizeRow(line, count, *across, across->values.data(), row);
}

// After adding 2^23 the last bits hold the value, rounded to even.
inline void Put(float value, uint8_t* to) {
  const float shifted = value + 8388608.0f;
  uint32_t bits;
  memcpy(&bits, &shifted, 4);
  *to = static_cast<uint8_t>(bits);
}

struct Bfloat16 {
  uint16_t bits;
};

// Rounds to even. Pixel values are never infinite and never NaN.
inline void Put(float value, Bfloat16* to) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  to->bits = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline void Put(float value, float* to) { *to = value; }

// The inputs of a row of the result: two resized rows, of one channel or of all
// channels.
struct Blend {
  const float *lower, *upper, *scale, *offset;
  float fraction;
  int count;
};

template <typename T>
TFPIPE_INLINE void PutRow(const Blend& blend, T* __restrict to) {
  const float* __restrict lower = blend.lower, * __restrict upper = blend.upper;
  const float* __restrict scale = blend.scale, * __restrict offset = blend.offset;
  const float fraction = blend.fraction;
  const int count = blend.count;
  for (int i = 0; i < count; ++i) {
    const float value = lower[i] + (upper[i] - lower[i]) * fraction;
    Put(sizeof(T) == 1 ? value : value * scale[i] + offset[i], to + i);
  }
}

TFPIPE_CLONES
static void PutUint8(const Blend& blend, uint8_t* to) { PutRow(blend, to); }
TFPIPE_CLONES
static void PutFloat32(const Blend& blend, float* to) { PutRow(blend, to); }
TFPIPE_CLONES
static void PutBfloat16(const Blend& blend, Bfloat16* to) { PutRow(blend, to); }

inline void PutValues(Pixel pixel, const Blend& blend, void* pixels, int64_t at) {
  switch (pixel) {
    case Pixel::kUint8: return PutUint8(blend, static_cast<uint8_t*>(pixels) + at);
    case Pixel::kFloat32: return PutFloat32(blend, static_cast<float*>(pixels) + at);
    case Pixel::kBfloat16:
      return PutBfloat16(blend, static_cast<Bfloat16*>(pixels) + at);
  }
}

}  // namespace tfpipe

#endif
