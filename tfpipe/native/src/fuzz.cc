// Crops images damaged at random; built with sanitizers:
//
//   fuzz NUM_IMAGES SEED FILE...
//
// An image is a file, or the result of rewrite.cc for the file, with a few bytes
// changed, lost or doubled. Every image goes through these checks:
//
//   input                                must hold
//   a random crop box                    both Huffman decoders agree: pixels and errors
//   a decoded image                      the sides in its header hold the crop box
//   the image rewritten or varied        the pixels of the image
//   the image turned or mirrored, twice  the pixels of the image
//   entry points of the image, damaged   the pixels of the image
//   or not, and of the image before
//   forged entry points                  no access outside of the JPEG
//   a damaged tf.train.Example           the image found lies within the Example
//   a drawn crop box                     the box lies within its image, of any sides
//
// Prints how many were decoded, refused, rewritten, turned, varied, entered and parsed.
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "crop_core.h"
#include "draw.h"
#include "example.h"
#include "rewrite.h"

// The usual options would spend a third of the time in the kernel, on pages given back
// and asked for again.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the name of the sanitizer
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8:thread_local_quarantine_size_kb=64:"
         "allocator_release_to_os_interval_ms=-1:malloc_context_size=1";
}

namespace {

using Bytes = std::vector<uint8_t>;

// NOLINTNEXTLINE(bugprone-*): main() seeds it, and equal seeds give equal images
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

// Draws a crop box, which mostly may lie within an image.
tfpipe::CropBox DrawCropBox() {
  if (Draw(50) == 0) {
    const auto any = [] { return static_cast<int>(generator()); };
    return {any(), any(), any(), any()};
  }
  return {Draw(60), Draw(45), 1 + Draw(25), 1 + Draw(25)};
}

tfpipe::Format DrawFormat() {
  const tfpipe::Pixel pixels[] = {tfpipe::Pixel::kUint8, tfpipe::Pixel::kFloat32,
                                  tfpipe::Pixel::kBfloat16};
  return {1 + Draw(24), 1 + Draw(24),    Draw(2) == 0, Draw(2) == 0, Draw(2) == 0,
          false,        pixels[Draw(3)], {1, 2, 3},    {0, 1, 2}};
}

Bytes Read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

using Copy = std::unique_ptr<uint8_t[]>;

// Returns a result in a buffer of exactly its size.
Copy Taken(uint8_t* result, size_t size) {
  Copy copy(new uint8_t[size]);
  std::copy(result, result + size, copy.get());
  tfpipe_free(result);
  return copy;
}

// Returns the rewritten image, or null if rewriting is refused.
Copy Rewrite(const uint8_t* bytes, size_t size, size_t* result_size) {
  uint8_t* result;
  if (tfpipe_rewrite(bytes, size, &result, result_size) != nullptr) return nullptr;
  return Taken(result, *result_size);
}

// Returns the turned image, or null if turning is refused.
Copy Turn(const uint8_t* bytes, size_t size, int orientation, size_t* result_size) {
  uint8_t* result;
  if (tfpipe_turn(bytes, size, orientation, &result, result_size) != nullptr)
    return nullptr;
  return Taken(result, *result_size);
}

// Returns the image with other codes, or null if varying is refused.
Copy Vary(const uint8_t* bytes, size_t size, bool mirror, size_t* result_size) {
  uint8_t* result;
  const uint64_t seed = uint64_t{generator()} << 32 | generator();
  if (tfpipe_vary(bytes, size, seed, mirror, &result, result_size) != nullptr)
    return nullptr;
  return Taken(result, *result_size);
}

// Returns the orientation of the reverse turn.
int Inverse(int orientation) {
  return orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
}

// Entry points in a buffer of exactly their size.
struct Table {
  Copy bytes;
  size_t size = 0;
};

Table Copied(const Bytes& bytes) {
  Table table = {Copy(new uint8_t[bytes.size()]), bytes.size()};
  std::copy(bytes.begin(), bytes.end(), table.bytes.get());
  return table;
}

// Returns the entry points of an image; empty if there are none.
Table FindTable(const uint8_t* bytes, size_t size) {
  uint8_t* result;
  Table table;
  const auto distance = static_cast<size_t>(Draw(300));
  if (tfpipe_find_entry_points(bytes, size, distance, &result, &table.size) !=
      nullptr) {
    return {};
  }
  table.bytes = Taken(result, table.size);
  return table;
}

// Returns entry points with other numbers, and digests that fit.
Table Forged(const Table& table, const uint8_t* jpeg, size_t size) {
  Bytes bytes(table.bytes.get(), table.bytes.get() + table.size);
  const auto put = [&](uint64_t value, size_t count, size_t at) {
    for (size_t i = 0; i < count && at + i < bytes.size(); ++i)
      bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
  };
  for (int change = 1 + Draw(4); change > 0; --change) {
    // Mostly behind the head, which decides about the size of the table.
    const int at = Draw(8) ? 21 + Draw(static_cast<int64_t>(bytes.size()) - 21)
                           : Draw(static_cast<int64_t>(bytes.size()));
    bytes[at] = static_cast<uint8_t>(Draw(256));
  }
  put(size, 4, 8);
  put(tfpipe::Xxh64(jpeg, size), 8, 12);
  put(tfpipe::Xxh64(bytes.data(), bytes.size() - 4), 4, bytes.size() - 4);
  return Copied(bytes);
}

// The result of a crop.
struct Outcome {
  bool done;
  Bytes pixels;
  char message[tfpipe::kMessageLength];
};

Outcome Crop(const tfpipe::Source& source, const tfpipe::CropBox& box, bool flip,
             tfpipe::Format format, bool plain) {
  const size_t value_bytes = format.pixel == tfpipe::Pixel::kUint8     ? 1
                             : format.pixel == tfpipe::Pixel::kFloat32 ? 4
                                                                       : 2;
  const size_t num_bytes = value_bytes * 3 * format.height * format.width;
  Outcome outcome = {false, Bytes(num_bytes), ""};
  format.plain = plain;
  outcome.done =
      tfpipe::Crop(source, box, flip, format, outcome.pixels.data(), outcome.message);
  return outcome;
}

// Returns whether the header has sides that hold the crop box.
bool HasSides(const uint8_t* jpeg, size_t size, const tfpipe::CropBox& box) {
  int height, width;
  char message[tfpipe::kMessageLength];
  return tfpipe::ReadSides(jpeg, size, &height, &width, message) &&
         int64_t{box.top} + box.height <= height &&
         int64_t{box.left} + box.width <= width;
}

bool Same(const Outcome& a, const Outcome& b) {
  return a.done == b.done && (!a.done || a.pixels == b.pixels) &&
         strcmp(a.message, b.message) == 0;
}

int Differ(int64_t i, const char* what, const Outcome& a, const Outcome& b) {
  printf("image %lld: %s differ: %d %d %s %s\n", static_cast<long long>(i), what,
         a.done, b.done, a.message, b.message);
  return 1;
}

void AddSpan(uint8_t tag, const Bytes& bytes, Bytes* to) {
  to->push_back(tag);
  size_t size = bytes.size();
  for (; size > 0x7f; size >>= 7) to->push_back(static_cast<uint8_t>(size | 0x80));
  to->push_back(static_cast<uint8_t>(size));
  to->insert(to->end(), bytes.begin(), bytes.end());
}

// Adds a feature to the features of an example.
void AddFeature(const std::string& key, uint8_t kind, const Bytes& list, Bytes* to) {
  Bytes entry, feature;
  AddSpan(kind, list, &feature);
  AddSpan(tfpipe::kDelimited1, Bytes(key.begin(), key.end()), &entry);
  AddSpan(tfpipe::kDelimited2, feature, &entry);
  AddSpan(tfpipe::kDelimited1, entry, to);
}

// Parses a damaged example. Returns whether the results lie within the example; counts
// the examples with an image and all numbers.
bool Parse(const Bytes& image, int64_t* num_parsed) {
  Bytes list, features, example;
  const Bytes packed = {tfpipe::kDelimited1, 2, 0xac, 2},
              single = {tfpipe::kVarint1, 7};
  AddSpan(tfpipe::kDelimited1, image, &list);
  AddFeature("label", tfpipe::kDelimited3, Draw(2) ? packed : single, &features);
  AddFeature("image", tfpipe::kDelimited1, list, &features);
  AddFeature("height", tfpipe::kDelimited3, packed, &features);
  AddSpan(tfpipe::kDelimited1, features, &example);
  const Bytes broken = Broken(example);
  const Copy bytes(new uint8_t[broken.size()]);
  std::copy(broken.begin(), broken.end(), bytes.get());
  const tfpipe::Span whole = {bytes.get(), bytes.get() + broken.size()};
  tfpipe::Span image_bytes;
  int64_t numbers[3];
  std::string rest;
  const tfpipe::Keys keys = {"image", {"label", "height", "width"}, 1 + Draw(2)};
  if (!tfpipe::ReadExample(whole, keys, &image_bytes, numbers, &rest).empty())
    return true;
  ++*num_parsed;
  if (rest.size() > whole.size()) return false;
  return image_bytes.begin >= whole.begin && image_bytes.end <= whole.end &&
         image_bytes.begin <= image_bytes.end;
}

// Draws a crop box as RandomCrop does. Returns whether it lies within its image.
bool DrawWithin() {
  const int64_t seed[] = {static_cast<int64_t>(generator()), Draw(9)};
  const auto side = [] { return 1 + Draw(Draw(4) ? 600 : tfpipe::kMaxSide); };
  const int height = side(), width = side();
  const auto share = [](int most) { return static_cast<float>(1 + Draw(most)) / 1000; };
  tfpipe::Range range = {
      {share(1000), share(1000)}, {share(9999), share(9999)}, Draw(12)};
  std::sort(range.area, range.area + 2);
  std::sort(range.ratio, range.ratio + 2);
  tfpipe::Draws draws(seed);
  const tfpipe::CropBox box = tfpipe::DrawCropBox(height, width, range, &draws);
  return box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
         box.top + box.height <= height && box.left + box.width <= width;
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments < 4) return 2;
  const int64_t num_images = strtoll(arguments[1], nullptr, 10);
  generator.seed(static_cast<unsigned>(strtoll(arguments[2], nullptr, 10)));
  std::vector<Bytes> files;
  for (int i = 3; i < num_arguments; ++i) {
    files.push_back(Read(arguments[i]));
    size_t size;
    const auto rewritten = Rewrite(files.back().data(), files.back().size(), &size);
    if (rewritten == nullptr) return 2;
    files.emplace_back(rewritten.get(), rewritten.get() + size);
  }
  // An image with a huge size in its header would take seconds.
  setenv("JPEGMEM", "32M", 1);
  int64_t num_refused = 0, num_rewritten = 0, num_turned = 0, num_varied = 0,
          num_entered = 0, num_parsed = 0;
  Table last;
  for (int64_t i = 0; i < num_images; ++i) {
    const Bytes damaged = Broken(files[Draw(static_cast<int64_t>(files.size()))]);
    // The buffer has exactly the size of the image, so that a byte read beyond is
    // detected.
    std::unique_ptr<uint8_t[]> bytes(new uint8_t[damaged.size()]);
    std::copy(damaged.begin(), damaged.end(), bytes.get());
    const tfpipe::CropBox box = DrawCropBox();
    const bool flip = Draw(2) == 0;
    const tfpipe::Format format = DrawFormat();
    const Outcome expected =
        Crop({bytes.get(), damaged.size(), nullptr, 0}, box, flip, format, false);
    const Outcome by_libjpeg =
        Crop({bytes.get(), damaged.size(), nullptr, 0}, box, flip, format, true);
    if (!Same(expected, by_libjpeg))
      return Differ(i, "the Huffman decoders", expected, by_libjpeg);
    if (!expected.done && expected.message[0] == 0) return 1;
    num_refused += !expected.done;
    const bool has_sides = HasSides(bytes.get(), damaged.size(), box);
    if (expected.done && !has_sides)
      return Differ(i, "an image and its header", expected, expected);
    size_t size;
    if (const Copy rewritten = Rewrite(bytes.get(), damaged.size(), &size)) {
      ++num_rewritten;
      const Outcome again =
          Crop({rewritten.get(), size, nullptr, 0}, box, flip, format, false);
      if (!Same(expected, again))
        return Differ(i, "an image and it rewritten", expected, again);
    }
    const int orientation = 1 + Draw(8);
    if (const Copy turned = Turn(bytes.get(), damaged.size(), orientation, &size)) {
      ++num_turned;
      const Copy back = Turn(turned.get(), size, Inverse(orientation), &size);
      if (back == nullptr) return Differ(i, "an image and nothing", expected, expected);
      const Outcome again =
          Crop({back.get(), size, nullptr, 0}, box, flip, format, false);
      if (!Same(expected, again))
        return Differ(i, "an image and it turned", expected, again);
    }
    Table table = FindTable(bytes.get(), damaged.size());
    const auto with = [&](const Table& points) {
      return Crop({bytes.get(), damaged.size(), points.bytes.get(), points.size}, box,
                  flip, format, false);
    };
    if (Draw(4) == 0 && !Same(expected, with(last)))
      return Differ(i, "other points", expected, expected);
    if (table.size > 0) {
      ++num_entered;
      if (!Same(expected, with(table)))
        return Differ(i, "entry points", expected, with(table));
      const Table damaged_table =
          Copied(Broken({table.bytes.get(), table.bytes.get() + table.size}));
      if (!Same(expected, with(damaged_table)))
        return Differ(i, "damaged points", expected, expected);
      with(Forged(table, bytes.get(), damaged.size()));
      last = std::move(table);
    }
    if (!Parse(damaged, &num_parsed))
      return Differ(i, "an example and its image", expected, expected);
    if (!DrawWithin())
      return Differ(i, "a drawn box and its image", expected, expected);
    const bool mirror = Draw(2) == 0;
    if (Copy varied = Vary(bytes.get(), damaged.size(), mirror, &size)) {
      ++num_varied;
      if (mirror) varied = Vary(varied.get(), size, true, &size);
      if (varied == nullptr)
        return Differ(i, "an image and nothing", expected, expected);
      const Outcome again =
          Crop({varied.get(), size, nullptr, 0}, box, flip, format, false);
      if (!Same(expected, again))
        return Differ(i, "an image and it varied", expected, again);
    }
  }
  const auto print = [](const char* name, int64_t value, const char* end) {
    printf("\"%s\": %lld%s", name, static_cast<long long>(value), end);
  };
  printf("{");
  print("num_images", num_images, ", ");
  print("num_refused", num_refused, ", ");
  print("num_rewritten", num_rewritten, ", ");
  print("num_turned", num_turned, ", ");
  print("num_varied", num_varied, ", ");
  print("num_entered", num_entered, ", ");
  print("num_parsed", num_parsed, "}\n");
  return 0;
}
