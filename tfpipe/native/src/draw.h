// Random numbers and crop boxes for many seeds at once, equal to the results of
// tf.random.stateless_uniform and tf.image.stateless_sample_distorted_bounding_box for
// each seed (stateless_random_ops.cc, sample_distorted_bounding_box_op.cc).
#ifndef TFPIPE_NATIVE_DRAW_H_
#define TFPIPE_NATIVE_DRAW_H_

#include <cmath>

#include "tensorflow/core/lib/random/exact_uniform_int.h"
#include "tensorflow/core/lib/random/philox_random.h"
#include "tensorflow/core/lib/random/random_distributions.h"

#include "crop_core.h"

namespace tfpipe {

// Draws numbers from a seed of two integers. A first generator with the seed as its key
// gives the key and the counter of the second generator, which draws.
class Draws {
 public:
  explicit Draws(const int64_t* seed) {
    const uint64_t first = seed[0], second = seed[1];
    const Philox::ResultType mixed =
        Philox(Counter(first, first >> 32, second, second >> 32),
               Key(0x3ec8f720, 0x02461e29))();
    generator_ = Philox(Counter(0, 0, mixed[2], mixed[3]), Key(mixed[0], mixed[1]));
  }

  uint32_t Bits() {
    if (used_ == Philox::kResultElementCount) {
      results_ = generator_();
      used_ = 0;
    }
    return results_[used_++];
  }

  // 0 <= result < 1.
  float Share() { return tensorflow::random::Uint32ToFloat(Bits()); }

  // 0 <= result < end.
  int Whole(uint32_t end) {
    return tensorflow::random::ExactUniformInt<uint32_t>(end,
                                                         [this] { return Bits(); });
  }

 private:
  using Philox = tensorflow::random::PhiloxRandom;

  static Philox::ResultType Counter(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    Philox::ResultType counter;
    counter[0] = a, counter[1] = b, counter[2] = c, counter[3] = d;
    return counter;
  }

  static Philox::Key Key(uint32_t a, uint32_t b) {
    Philox::Key key;
    key[0] = a, key[1] = b;
    return key;
  }

  Philox generator_;
  Philox::ResultType results_;
  int used_ = Philox::kResultElementCount;
};

// The arguments of RandomCrop.
struct Range {
  float area[2], ratio[2];
  int max_attempts;
};

constexpr int kMaxSide = 65535;

inline int Rounded(float value) { return static_cast<int>(lrintf(value)); }

// Draws a crop box of an aspect ratio in an image of height x width. Returns whether
// the box fits.
inline bool TryCropBox(int height, int width, const Range& range, float ratio,
                       Draws* draws, CropBox* box) {
  const float min_area = range.area[0] * width * height;
  const float max_area = range.area[1] * width * height;
  int most = Rounded(std::sqrt(max_area / ratio));
  if (Rounded(most * ratio) > width) {
    most = static_cast<int>((width + 0.5 - 0.0000001f) / ratio);
    if (Rounded(most * ratio) > width) --most;
  }
  most = std::min(most, height);
  int side = std::min(Rounded(std::sqrt(min_area / ratio)), most);
  if (side < most) side += draws->Whole(most - side + 1);
  const auto area_of = [ratio](int64_t side) {
    return static_cast<float>(side * Rounded(side * ratio));
  };
  // Adds or takes a pixel if rounding has left the range of areas.
  if (area_of(side) < min_area) ++side;
  if (area_of(side) > max_area) --side;
  const int other = Rounded(side * ratio);
  const float area = area_of(side);
  if (area < min_area || area > max_area || other > width || side > height ||
      other <= 0 || side <= 0) {
    return false;
  }
  const int top = side < height ? draws->Whole(height - side) : 0;
  const int left = other < width ? draws->Whole(width - other) : 0;
  *box = {top, left, side, other};
  return true;
}

// Returns the first box that fits, otherwise the whole image. A side longer than
// kMaxSide is a damaged record's: no JPEG has such a side.
inline CropBox DrawCropBox(int height, int width, const Range& range, Draws* draws) {
  CropBox box = {0, 0, height, width};
  if (std::min(height, width) < 1 || std::max(height, width) > kMaxSide) return box;
  for (int i = 0; i < range.max_attempts; ++i) {
    const float ratio =
        draws->Share() * (range.ratio[1] - range.ratio[0]) + range.ratio[0];
    if (TryCropBox(height, width, range, ratio, draws, &box)) break;
  }
  return box;
}

}  // namespace tfpipe

#endif
