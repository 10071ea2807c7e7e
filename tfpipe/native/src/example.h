// Finds an image and some numbers in a serialized tf.train.Example, without copying the
// bytes. The rules are those of tf.io.parse_example (example_proto_fast_parsing.cc):
//
//   a map entry                        two fields: key and feature, in any order
//   several features with one key      the last counts, unless without a value; each
//                                      begins with a list
//   a feature without a value          missing
//   several lists in a feature         the first counts
//   a list of numbers                  packed or not; nothing after a packed run counts
//   several lists of features          all count
//   an unknown field                   skipped beside the features, refused elsewhere
//   a length beyond the end            refused here; the end in parse_example
#ifndef TFPIPE_NATIVE_EXAMPLE_H_
#define TFPIPE_NATIVE_EXAMPLE_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <string>
#include <vector>

namespace tfpipe {

// Bytes, read from the front.
struct Span {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;

  bool empty() const { return begin == end; }
  size_t size() const { return static_cast<size_t>(end - begin); }

  bool Equals(const std::string& text) const {
    return size() == text.size() && memcmp(begin, text.data(), text.size()) == 0;
  }

  // Takes the next byte if it is `byte`.
  bool Take(uint8_t byte) {
    if (empty() || *begin != byte) return false;
    ++begin;
    return true;
  }

  bool TakeNumber(uint64_t* number) {
    *number = 0;
    for (unsigned shift = 0; shift < 70 && !empty(); shift += 7) {
      const uint8_t byte = *begin++;
      if (shift < 64) *number |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Takes `count` bytes.
  bool TakeBytes(uint64_t count, Span* taken) {
    if (count > size()) return false;
    *taken = {begin, begin + count};
    begin += count;
    return true;
  }

  // Takes a length, and as many bytes.
  bool TakeSpan(Span* taken) {
    uint64_t count;
    return TakeNumber(&count) && TakeBytes(count, taken);
  }
};

// The keys of the features to find.
struct Keys {
  std::string image;
  std::vector<std::string> numbers;
  int64_t num_optional = 0;  // of the last `numbers`: 0 if missing
};

// The tags of fields: the number of the field, and the kind of its value.
constexpr uint8_t kVarint1 = 0x08, kDelimited1 = 0x0a, kDelimited2 = 0x12,
                  kDelimited3 = 0x1a;

// Skips an unknown field. Returns false for a kind that does not exist.
inline bool SkipField(uint64_t tag, Span* bytes) {
  uint64_t number;
  Span skipped;
  switch (tag & 7) {
    case 0: return bytes->TakeNumber(&number);
    case 1: return bytes->TakeBytes(8, &skipped);
    case 2: return bytes->TakeSpan(&skipped);
    case 5: return bytes->TakeBytes(4, &skipped);
    default: return false;
  }
}

// Whether a tag is that of a list of bytes, floats or integers.
inline bool IsList(uint8_t tag) {
  return tag == kDelimited1 || tag == kDelimited2 || tag == kDelimited3;
}

// Reads a feature of a single byte string.
inline bool ReadImage(Span feature, Span* image) {
  Span list;
  return feature.Take(kDelimited1) && feature.TakeSpan(&list) &&
         list.Take(kDelimited1) && list.TakeSpan(image) && list.empty();
}

// Reads a feature of a single int64.
inline bool ReadInt(Span feature, int64_t* value) {
  Span list, packed;
  uint64_t number;
  if (!feature.Take(kDelimited3) || !feature.TakeSpan(&list)) return false;
  if (list.Take(kDelimited1)) {
    if (!list.TakeSpan(&packed) || !packed.TakeNumber(&number) || !packed.empty()) {
      return false;
    }
  } else if (!list.Take(kVarint1) || !list.TakeNumber(&number) || !list.empty()) {
    return false;
  }
  *value = static_cast<int64_t>(number);
  return true;
}

// The feature of each key, the image last; empty if missing.
using Features = std::vector<Span>;

inline bool FindInFeatures(Span features, const Keys& keys, Features* results,
                           std::string* rest) {
  while (!features.empty()) {
    Span entry, key, feature;
    const uint8_t* const begin = features.begin;
    if (!features.Take(kDelimited1) || !features.TakeSpan(&entry)) return false;
    for (int field = 0; field < 2; ++field) {
      const bool is_key = entry.Take(kDelimited1);
      if (!is_key && !entry.Take(kDelimited2)) return false;
      if (!entry.TakeSpan(is_key ? &key : &feature)) return false;
    }
    if (!entry.empty()) return false;
    if (rest != nullptr && !key.Equals(keys.image))
      rest->append(reinterpret_cast<const char*>(begin), features.begin - begin);
    if (feature.empty()) continue;
    for (size_t i = 0; i < results->size(); ++i) {
      const bool is_image = i == keys.numbers.size();
      if (!key.Equals(is_image ? keys.image : keys.numbers[i])) continue;
      if (!IsList(*feature.begin)) return false;
      (*results)[i] = feature;
    }
  }
  return true;
}

// Reads an example. Returns an empty string, or the fault.
//
//   image   the bytes of the image
//   values  room for a number for each of `keys.numbers`
//   rest    gets all features but the image, as serialized Features; may be null
inline std::string ReadExample(Span bytes, const Keys& keys, Span* image,
                               int64_t* values, std::string* rest) {
  Features results(keys.numbers.size() + 1);
  while (!bytes.empty()) {
    uint64_t tag;
    Span features;
    const bool is_sound = bytes.Take(kDelimited1)
                              ? bytes.TakeSpan(&features) &&
                                    FindInFeatures(features, keys, &results, rest)
                              : bytes.TakeNumber(&tag) && SkipField(tag, &bytes);
    if (!is_sound) return "its data is no tf.train.Example";
  }
  const size_t num_needed = keys.numbers.size() - keys.num_optional;
  for (size_t i = 0; i < keys.numbers.size(); ++i) {
    values[i] = 0;
    if (i >= num_needed && results[i].empty()) continue;
    if (!ReadInt(results[i], values + i))
      return "its feature " + keys.numbers[i] + " must be one int64";
  }
  if (!ReadImage(results.back(), image))
    return "its feature " + keys.image + " must be one byte string";
  return "";
}

}  // namespace tfpipe

#endif
