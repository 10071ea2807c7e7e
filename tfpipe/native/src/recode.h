// Huffman codes of a sequential JPEG, from one set of tables to another: the codes are
// exchanged, and the bits of the values are copied as they are.
//
// No coefficient is computed. Bits are read 8 bytes at a time, and written so too, from
// and to memory without the zeros that follow a 0xff.
#ifndef TFPIPE_NATIVE_RECODE_H_
#define TFPIPE_NATIVE_RECODE_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace tfpipe {

constexpr int kPlaces = 64;          // coefficients of a block
constexpr int kMaxSymbols = 256;     // of a table
constexpr int kMaxLength = 16;       // of a code
constexpr int kDirect = 10;          // bits of a code that is found at once
constexpr int kBlockEnds = 128;      // "advance" of the symbol that ends a block
constexpr int kNoCode = 256;         // "advance" of a code that does not exist
constexpr uint8_t kNoLeap = 255;     // "advance" of bits that hold no whole code
constexpr int kMaxMcuBlocks = 10;
constexpr size_t kPadding = 512;     // more than the codes of a block: 64 * 31 bits
constexpr size_t kMaxMcuBytes = kMaxMcuBlocks * kPlaces * 31 / 8 + 8;

// One table as a DHT segment holds it.
struct Codes {
  int num_symbols = 0;
  uint8_t lengths[kMaxSymbols];  // of the codes, which never fall
  uint8_t symbols[kMaxSymbols];
};

// What to do with one code: read `taken` bits of it and `size` bits of the value; write
// `code` and these bits, `given` in all; go on by `advance` places.
struct Step {
  uint16_t code, advance;
  uint8_t taken, size, given, number;
};

struct Steps {
  Step direct[1 << kDirect];
  Step all[kMaxSymbols];
  int32_t last_code[kMaxLength + 1];  // of each length, or -1
  int32_t first_number[kMaxLength + 1];
};

// What to do with the next kDirect bits, which hold a few codes with their values: read
// `taken` bits, and `extra` bits more of the last value; write `codes` and the extra bits,
// `given` in all; go on by `advance` places.
struct Leap {
  uint32_t codes;
  uint8_t taken, extra, given, advance;
};

struct Leaps {
  Leap direct[1 << kDirect];
};

inline int SizeOf(int symbol, bool dc) { return dc ? symbol : symbol & 15; }

// Decoders take any AC symbol without a value for the end of a block, except ZRL.
inline uint16_t AdvanceOf(int symbol, bool dc) {
  if (dc) return 1;
  if ((symbol & 15) == 0 && symbol != 0xf0) return kBlockEnds;
  return static_cast<uint16_t>((symbol >> 4) + 1);
}

// Returns whether the lengths are those of a prefix code that has no code of all ones.
inline bool IsSound(const Codes& codes, bool dc) {
  int64_t used = 0;
  for (int i = 0; i < codes.num_symbols; ++i) {
    used += int64_t{1} << (kMaxLength - codes.lengths[i]);
    if (dc && codes.symbols[i] > 15) return false;
  }
  return codes.num_symbols > 0 && used < (1 << kMaxLength);
}

// Fills the steps from the codes of the source to `codes` and `lengths` of its symbols.
inline void FillSteps(const Codes& source, bool dc, const uint16_t* codes,
                      const uint8_t* lengths, Steps* steps) {
  const Step none = {0, kNoCode, 1, 0, 1, 0};
  std::fill(steps->direct, steps->direct + (1 << kDirect), none);
  std::fill(steps->last_code, steps->last_code + kMaxLength + 1, -1);
  int code = 0, length = 0;
  for (int i = 0; i < source.num_symbols; ++i, ++code) {
    if (source.lengths[i] > length) {
      code <<= source.lengths[i] - length;
      length = source.lengths[i];
      steps->first_number[length] = i - code;
    }
    const int size = SizeOf(source.symbols[i], dc);
    steps->all[i] = {codes[i],
                     AdvanceOf(source.symbols[i], dc),
                     static_cast<uint8_t>(length),
                     static_cast<uint8_t>(size),
                     static_cast<uint8_t>(lengths[i] + size),
                     static_cast<uint8_t>(i)};
    steps->last_code[length] = code;
    if (length > kDirect) continue;
    Step* first = steps->direct + (code << (kDirect - length));
    std::fill(first, first + (1 << (kDirect - length)), steps->all[i]);
  }
  // A longer code is searched for.
  Step* rest = std::find_if(steps->direct, steps->direct + (1 << kDirect),
                            [](const Step& step) { return step.advance == kNoCode; });
  std::for_each(rest, steps->direct + (1 << kDirect), [](Step& s) { s.taken = 0; });
}

// Returns the codes that begin in the first kDirect bits, with the new codes.
inline Leap FindLeap(const Steps& steps, int window) {
  Leap leap = {0, 0, 0, 0, 0};
  while (leap.extra == 0 && leap.advance < kBlockEnds) {
    const int used = leap.taken;
    const Step& step = steps.direct[window << used & ((1 << kDirect) - 1)];
    const int places = step.advance == kBlockEnds ? 0 : step.advance;
    // A leap within a block must not look like its end.
    if (step.advance == kNoCode || step.taken == 0 || step.taken > kDirect - used ||
        leap.given + step.given - step.size > 32 || leap.advance + places > kPlaces) {
      break;
    }
    leap.codes = leap.codes << (step.given - step.size) | step.code;
    leap.taken = static_cast<uint8_t>(used + step.taken);
    leap.given = static_cast<uint8_t>(leap.given + step.given);
    leap.advance = static_cast<uint8_t>(leap.advance + step.advance);
    const int left = kDirect - leap.taken;
    if (step.size > left) {
      leap.extra = step.size;
    } else if (step.size > 0) {
      const int value = window >> (left - step.size) & ((1 << step.size) - 1);
      if (leap.given > 32) {
        leap.extra = step.size;
        break;
      }
      leap.codes = leap.codes << step.size | static_cast<uint32_t>(value);
      leap.taken = static_cast<uint8_t>(leap.taken + step.size);
    }
  }
  if (leap.taken == 0) leap.advance = kNoLeap;
  return leap;
}

inline void FillLeaps(const Steps& steps, Leaps* leaps) {
  for (int i = 0; i < 1 << kDirect; ++i) leaps->direct[i] = FindLeap(steps, i);
}

static __attribute__((noinline)) Step FindLongStep(uint64_t bits, const Steps& steps) {
  for (int length = kDirect + 1; length <= kMaxLength; ++length) {
    const int32_t code = static_cast<int32_t>(bits >> (64 - length));
    if (code <= steps.last_code[length]) {
      return steps.all[steps.first_number[length] + code];
    }
  }
  return {0, kNoCode, 1, 0, 1, 0};
}

inline uint64_t BigEndian(uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  return __builtin_bswap64(value);
#else
  return value;
#endif
}

// The next bits, from the highest, and how many of them are valid.
struct Reader {
  const uint8_t* next;
  uint64_t bits = 0;
  int64_t count = 0;

  inline __attribute__((always_inline)) void Refill() {
    uint64_t bytes;
    memcpy(&bytes, next, 8);
    bits |= BigEndian(bytes) >> count;
    next += (63 - count) >> 3;
    count |= 56;
  }
  inline __attribute__((always_inline)) void Drop(int number) {
    bits <<= number;
    count -= number;
  }
};

// Writes bits.
struct Writer {
  uint8_t* next;
  uint64_t bits = 0;
  int count = 0;  // below 8

  inline __attribute__((always_inline)) void Put(uint64_t value, int number) {
    bits |= value << (64 - count - number);
    count += number;
    const uint64_t bytes = BigEndian(bits);
    memcpy(next, &bytes, 8);
    next += count >> 3;
    bits <<= count & ~7;
    count &= 7;
  }
  // Fills the last byte with ones.
  void End() {
    if (count > 0) Put((1u << (8 - count)) - 1, 8 - count);
  }
};

// Counts codes instead of writing them.
struct Tally {
  uint32_t* counts;
};

inline __attribute__((always_inline)) Step TakeStep(const Steps& steps, Reader* reader) {
  Step step = steps.direct[reader->bits >> (64 - kDirect)];
  if (__builtin_expect(step.taken == 0, 0)) step = FindLongStep(reader->bits, steps);
  return step;
}

inline __attribute__((always_inline)) void Give(const Step& step, const Reader& reader,
                                                Writer* writer) {
  const uint64_t value = reader.bits << step.taken >> 1 >> (63 - step.size);
  writer->Put(static_cast<uint64_t>(step.code) << step.size | value, step.given);
}

inline __attribute__((always_inline)) void Give(const Step& step, const Reader&,
                                                Tally* tally) {
  ++tally->counts[step.number];
}

// Takes a code of a block and goes on. Returns whether the block goes on.
template <typename Target>
inline __attribute__((always_inline)) bool TakeOneCode(const Steps& ac, Reader* reader,
                                                       Target* target, int* place) {
  reader->Refill();
  const Step step = TakeStep(ac, reader);
  Give(step, *reader, target);
  reader->Drop(step.taken + step.size);
  *place += step.advance;
  return *place < kPlaces;
}

// Returns whether a block may end so.
inline bool EndsWell(int place) {
  return place == kPlaces || (place > kBlockEnds && place < kBlockEnds + kPlaces);
}

// Takes the first code of a block. Returns whether it is sound.
template <typename Target>
inline __attribute__((always_inline)) bool TakeFirst(const Steps& dc, Reader* reader,
                                                     Target* target) {
  reader->Refill();
  const Step step = TakeStep(dc, reader);
  Give(step, *reader, target);
  reader->Drop(step.taken + step.size);
  return step.advance == 1;
}

// Counts the codes of a block. Returns whether they are sound.
inline bool CountBlock(const Steps& dc, const Steps& ac, Reader* reader, Tally to_dc,
                       Tally to_ac) {
  if (!TakeFirst(dc, reader, &to_dc)) return false;
  int place = 1;
  while (TakeOneCode(ac, reader, &to_ac, &place)) {
  }
  return EndsWell(place);
}

// Writes the codes of a block. Returns whether they are sound.
inline __attribute__((always_inline)) bool WriteBlock(const Steps& dc, const Steps& ac,
                                                      const Leaps& leaps,
                                                      Reader* reader, Writer* writer) {
  if (!TakeFirst(dc, reader, writer)) return false;
  int place = 1;
  for (;;) {
    reader->Refill();
    const Leap leap = leaps.direct[reader->bits >> (64 - kDirect)];
    const int next = place + leap.advance;
    if (next >= kPlaces && !(next > kBlockEnds && next < kBlockEnds + kPlaces)) {
      // The leap goes beyond the block, or the code is a long one.
      if (TakeOneCode(ac, reader, writer, &place)) continue;
      return EndsWell(place);
    }
    const uint64_t extra = reader->bits << leap.taken >> 1 >> (63 - leap.extra);
    writer->Put(uint64_t{leap.codes} << leap.extra | extra, leap.given);
    reader->Drop(leap.taken + leap.extra);
    if (next >= kPlaces) return true;
    place = next;
  }
}

}  // namespace tfpipe

#endif
