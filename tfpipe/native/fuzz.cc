// Feeds the crop with images that are broken at random, built with sanitizers:
//
//   fuzz NUM_IMAGES SEED FILE...
//
// Every image is a file with a few bytes changed, lost or doubled, at a random window.
// It is decoded with both Huffman decoders, which have to agree on each pixel and on
// what is an error. Prints how many were decoded and how many refused.
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "crop_core.h"

namespace {

using Bytes = std::vector<uint8_t>;

std::mt19937 generator;

// 0 <= result < end.
int Draw(int64_t end) {
  return static_cast<int>(generator() % std::max<int64_t>(end, 1));
}

Bytes Broken(Bytes bytes) {
  for (int change = Draw(6); change > 0; --change) {
    const int size = static_cast<int>(bytes.size());
    if (size == 0) break;
    // Half of the changes are in the headers.
    const int at = Draw(2) ? Draw(std::min(size, 700)) : Draw(size);
    const auto begin = bytes.begin() + at, end = begin + Draw(std::min(size - at, 64));
    switch (Draw(8)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.erase(begin, end); break;
      case 2: {
        const Bytes twice(begin, end);
        bytes.insert(begin, twice.begin(), twice.end());
        break;
      }
      case 3: bytes[at] = 0xff; break;
      case 4: bytes[at] ^= 1 << Draw(8); break;
      case 5: bytes.insert(begin, {0xff, static_cast<uint8_t>(0xc0 + Draw(64))}); break;
      default: bytes[at] = static_cast<uint8_t>(Draw(256));
    }
  }
  return bytes;
}

// Mostly one that may be inside.
tfpipe::Window DrawWindow() {
  if (Draw(50) == 0) {
    const auto any = [] { return static_cast<int>(generator()); };
    return {any(), any(), any(), any()};
  }
  return {Draw(20), Draw(20), 1 + Draw(20), 1 + Draw(20)};
}

tfpipe::Format DrawFormat() {
  const tfpipe::Pixel pixels[] = {tfpipe::Pixel::kUint8, tfpipe::Pixel::kFloat32,
                                  tfpipe::Pixel::kBfloat16};
  return {1 + Draw(24), Draw(2) == 0, Draw(2) == 0, Draw(2) == 0, false,
          pixels[Draw(3)], {1, 2, 3}, {0, 1, 2}};
}

Bytes Read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments < 4) return 2;
  const int64_t num_images = atoll(arguments[1]);
  generator.seed(static_cast<unsigned>(atoll(arguments[2])));
  std::vector<Bytes> files;
  for (int i = 3; i < num_arguments; ++i) files.push_back(Read(arguments[i]));
  int64_t num_refused = 0;
  for (int64_t i = 0; i < num_images; ++i) {
    const Bytes drawn = Broken(files[Draw(static_cast<int64_t>(files.size()))]);
    // Of exactly that size, so that a byte beyond is found out.
    std::unique_ptr<uint8_t[]> bytes(new uint8_t[drawn.size()]);
    std::copy(drawn.begin(), drawn.end(), bytes.get());
    const tfpipe::Window window = DrawWindow();
    const bool flip = Draw(2) == 0;
    tfpipe::Format format = DrawFormat();
    const size_t width = format.pixel == tfpipe::Pixel::kUint8     ? 1
                         : format.pixel == tfpipe::Pixel::kFloat32 ? 4
                                                                   : 2;
    const size_t size = width * 3 * format.image_size * format.image_size;
    Bytes pixels[2] = {Bytes(size), Bytes(size)};
    char messages[2][tfpipe::kMessageLength] = {"", ""};
    bool done[2];
    for (int plain = 0; plain < 2; ++plain) {
      format.plain = plain == 1;
      done[plain] = tfpipe::Crop(bytes.get(), drawn.size(), window, flip, format,
                                 pixels[plain].data(), messages[plain]);
    }
    if (done[0] != done[1] || (done[0] && pixels[0] != pixels[1]) ||
        strcmp(messages[0], messages[1]) != 0) {
      printf("image %lld: the Huffman decoders differ: %d %d %s %s\n",
             static_cast<long long>(i), done[0], done[1], messages[0], messages[1]);
      return 1;
    }
    if (!done[0] && messages[0][0] == 0) return 1;
    num_refused += !done[0];
  }
  printf("{\"num_images\": %lld, \"num_refused\": %lld}\n",
         static_cast<long long>(num_images), static_cast<long long>(num_refused));
  return 0;
}
