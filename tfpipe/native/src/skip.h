// Passes over the MCUs that nobody wants, without a branch for each symbol.
//
// The stuffed zeros of a chunk of the scan are removed first. A look-up then needs no
// test: it gives one or two symbols, and the end of a block only selects another table.
// Where each block begins is noted; the DC values are read afterwards, as no look-up
// waits for them.
//
// A second skipper takes turns with the first one. It begins in the middle, at any
// byte, and is in step with the codes and the order of the components after a hundred
// bytes or so. When the first skipper comes to a place where both begin an MCU, all
// that follows is known.
#ifndef TFPIPE_NATIVE_SKIP_H_
#define TFPIPE_NATIVE_SKIP_H_

#include <stdint.h>
#include <string.h>

#include <algorithm>

#include "codes.h"

namespace tfpipe {

#ifdef TFPIPE_SMALL_PIECES                 // for fuzz.cc, whose images are small
constexpr int kChunkBytes = 700;           // of the scan
constexpr unsigned kMaxChunkBlocks = 100;  // that are passed over at once, at most
constexpr unsigned kMinTwoSkippersBits =
    1200;  // for which two skippers are worth while
#else
constexpr int kChunkBytes = 16384;
constexpr unsigned kMaxChunkBlocks = 4096;
constexpr unsigned kMinTwoSkippersBits = 8192;
#endif
constexpr int kChunkPadding = 16;   // so that 8 bytes may be read at its end
constexpr int kMinChunkBytes = 64;  // bytes: another chunk is worth while from here on
constexpr unsigned kMinChunkMcus = 2;  // for which a chunk is not worth while
constexpr int kGroup = 3;              // look-ups of kMaxSkipBits bits for 8 bytes

// A chunk of the scan without its stuffed zeros, and where these were: the number of
// bytes of the chunk before each.
struct Chunk {
  const uint8_t *begin = nullptr, *end = nullptr;  // in the scan
  int size = 0, num_stuffed = 0;
  uint8_t bytes[kChunkBytes + kChunkPadding];
  uint16_t stuffed[kChunkBytes / 2 + 1];
};

static_assert(kChunkBytes <= 16384, "the searches below begin with steps of 8192");

// Fills the chunk that begins here. It ends before a marker and before the end of the
// data.
inline void FillChunk(const uint8_t* begin, const uint8_t* end, Chunk* chunk) {
  if (end - begin > kChunkBytes) end = begin + kChunkBytes;
  const uint8_t* from = begin;
  uint8_t* to = chunk->bytes;
  int num_stuffed = 0;
  while (from < end) {
    const void* byte = memchr(from, 0xff, static_cast<size_t>(end - from));
    const auto* found = byte == nullptr ? end : static_cast<const uint8_t*>(byte);
    memcpy(to, from, static_cast<size_t>(found - from));
    to += found - from;
    from = found;
    if (end - from < 2 || from[1] != 0) break;
    *to++ = 0xff;
    from += 2;
    chunk->stuffed[num_stuffed++] = static_cast<uint16_t>(to - chunk->bytes);
  }
  chunk->begin = begin;
  chunk->end = from;
  chunk->size = static_cast<int>(to - chunk->bytes);
  chunk->num_stuffed = num_stuffed;
  memset(to, 0, kChunkPadding);
}

// Returns the address in the scan of a byte of the chunk.
inline const uint8_t* AddressOf(const Chunk& chunk, unsigned byte) {
  int count = 0;
  for (int step = 8192; step > 0; step /= 2) {
    const int next = count + step;
    if (next <= chunk.num_stuffed && chunk.stuffed[next - 1] <= byte) count = next;
  }
  return chunk.begin + byte + count;
}

// Returns the byte of the chunk that stands at this address, which no stuffed zero
// does.
inline unsigned ByteAt(const Chunk& chunk, const uint8_t* address) {
  const auto byte = static_cast<unsigned>(address - chunk.begin);
  unsigned count = 0;
  for (unsigned step = 8192; step > 0; step /= 2) {
    const unsigned next = count + step;
    if (next <= static_cast<unsigned>(chunk.num_stuffed) &&
        chunk.stuffed[next - 1] + next <= byte) {
      count = next;
    }
  }
  return byte - count;
}

// The looks of a block: of StartTable and AcTable.
struct SkipLooks {
  const uint16_t *starts, *others;
};

// The tables of a component.
struct SkippedComponent {
  SkipLooks looks;
  const DcTable* first;
  const AcTable* other;
};

// The blocks of an MCU. The arrays hold them again and again: of `cycle` blocks, which
// are whole MCUs and no less than a group of look-ups may end, and of some more.
struct SkippedMcu {
  int num_blocks = 0, cycle = 0;
  SkippedComponent parts[MAX_COMPS_IN_SCAN];
  int part_of[D_MAX_BLOCKS_IN_MCU + kGroup + 1];  // of each block
  SkipLooks looks[D_MAX_BLOCKS_IN_MCU + kGroup + 1];
};

TFPIPE_INLINE uint64_t BitsAt(const uint8_t* bytes, unsigned place) {
  uint64_t bits;
  memcpy(&bits, bytes + (place >> 3), 8);
  return ToBigEndian(bits) << (place & 7);
}

inline Bits BitsFrom(const Chunk& chunk, unsigned place) {
  const auto unread = static_cast<int64_t>(place & 7);
  const uint8_t* next = chunk.bytes + (place >> 3);
  return {BitsAt(next, 0) >> 8 << 8 << unread, 56 - unread, next + 7};
}

// Finds a code of any length. Returns its symbol, or -1.
inline int FindCode(const CodeTable& table, uint64_t bits, int* length) {
  for (int i = 1; i <= 16; ++i) {
    const auto code = static_cast<int32_t>(bits >> (64 - i));
    if (code > table.last_code[i]) continue;
    *length = i;
    return table.source.huffval[(table.first_value[i] + code) & 255];
  }
  return -1;
}

// Passes over blocks from one place on. Two of these take turns, since each of them
// waits most of the time for its look-ups.
struct Skipper {
  Bits b;
  unsigned at;  // bits of the chunk before this group of look-ups
  unsigned
      taken;  // bits that are taken of the group (8 bits), and the place in the block
  const uint16_t* looks;
  const SkipLooks* block;
  unsigned* begins;  // where each block begins, and the one after the last
  unsigned* next;
  int64_t stop;  // the bit that ends it; -1 after a code that does not exist
};

inline Skipper SkipperAt(const Chunk& chunk, const SkippedMcu& mcu, unsigned at,
                         unsigned* begins) {
  *begins = at;
  return {BitsFrom(chunk, at), at,     0,          mcu.looks->starts,
          mcu.looks,           begins, begins + 1, 0};
}

TFPIPE_INLINE void RefillSkipper(Skipper* s) {
  s->b.bits |= BitsAt(s->b.next, 0) >> s->b.count;
  s->b.next += (63 - s->b.count) >> 3;
  s->b.count |= 56;
}

// Returns whether the look-up fitted.
TFPIPE_INLINE bool TakeLook(Skipper* s, unsigned* look) {
  *look = s->looks[s->b.bits >> (64 - kAcLookBits)];
  s->b.bits <<= *look & 63;
  s->taken += *look;
  return (s->taken & kStuckAdvance << 8) == 0;
}

// Goes to the next block if this one is at its end.
TFPIPE_INLINE void NextLook(Skipper* s) {
  const uint16_t *starts = s->block[1].starts, *others = s->block->others;
  const unsigned ends = s->taken / (kEndAdvance << 8);
  *s->next = s->at + (s->taken & 255);
  s->next += ends;
  s->block += ends;
  s->looks = __builtin_expect_with_probability(ends != 0, 1, 0.5) ? starts : others;
  s->taken &= (ends - 1) | 255;
}

TFPIPE_INLINE void EndGroup(const SkippedMcu& mcu, Skipper* s) {
  s->at += s->taken & 255;
  s->b.count -= s->taken & 255;
  s->taken &= ~255u;
  s->block -= s->block >= mcu.looks + mcu.cycle ? mcu.cycle : 0;
}

// Takes back a look-up that did not fit, and takes one symbol, which may be long.
static TFPIPE_NOINLINE void SkipSlowly(const Chunk& chunk, const SkippedMcu& mcu,
                                       unsigned look, Skipper* s) {
  unsigned place = s->taken >> 8;
  if (place == 64) {  // the block is full, and has no code for its end
    s->at += s->taken & 255;
  } else {
    s->taken -= look;
    s->at += s->taken & 255;
    place = s->taken >> 8;
    const SkippedComponent& part = mcu.parts[mcu.part_of[s->block - mcu.looks]];
    const uint64_t bits = BitsAt(chunk.bytes, s->at);
    int length = 0;
    const int symbol = place == 0 ? FindCode(*part.first, bits, &length)
                                  : FindCode(*part.other, bits, &length);
    if (symbol < 0) {
      s->stop = -1;
      s->taken = 0;
      return;
    }
    s->at += static_cast<unsigned>(length + (place == 0 ? symbol : symbol & 15));
    place += place == 0 ? 1 : AdvanceOf(symbol);
  }
  s->b = BitsFrom(chunk, s->at);
  const bool ends = place >= 64;
  *s->next = s->at;
  s->next += ends;
  s->block += ends;
  s->taken = ends ? 0 : place << 8;
  s->looks = ends ? s->block->starts : s->block->others;
}

inline bool Goes(const Skipper& s, const unsigned* last) {
  return s.next <= last && s.at <= s.stop;
}

// Passes over blocks until the skipper stops, or `last` is filled: two more may be.
inline void SkipAlone(const Chunk& chunk, const SkippedMcu& mcu, const unsigned* last,
                      Skipper* skipper) {
  Skipper s = *skipper;
  while (Goes(s, last)) {
    RefillSkipper(&s);
#pragma GCC unroll 3
    for (int i = 0; i < kGroup; ++i) {
      unsigned look;
      if (TFPIPE_RARE(!TakeLook(&s, &look))) {
        Skipper copy = s;
        SkipSlowly(chunk, mcu, look, &copy);
        s = copy;
        break;
      }
      NextLook(&s);
    }
    EndGroup(mcu, &s);
  }
  *skipper = s;
}

// Does the same with two skippers, until one of them ends.
inline void SkipInTurns(const Chunk& chunk, const SkippedMcu& mcu,
                        const unsigned* one_last, const unsigned* other_last,
                        Skipper* first, Skipper* second) {
  Skipper one = *first, other = *second;
  while (Goes(one, one_last) && Goes(other, other_last)) {
    RefillSkipper(&one);
    RefillSkipper(&other);
#pragma GCC unroll 3
    for (int i = 0; i < kGroup; ++i) {
      unsigned look, other_look;
      const bool fits = TakeLook(&one, &look),
                 other_fits = TakeLook(&other, &other_look);
      if (TFPIPE_RARE(!(fits & other_fits))) {
        Skipper copy = one, other_copy = other;
        if (fits)
          NextLook(&copy);
        else
          SkipSlowly(chunk, mcu, look, &copy);
        if (other_fits)
          NextLook(&other_copy);
        else
          SkipSlowly(chunk, mcu, other_look, &other_copy);
        one = copy;
        other = other_copy;
        break;
      }
      NextLook(&one);
      NextLook(&other);
    }
    EndGroup(mcu, &one);
    EndGroup(mcu, &other);
  }
  *first = one;
  *second = other;
}

// Goes on with `one` until an MCU of it begins where one of `other` does. From there on
// all is the same: what `other` noted is appended, and `one` ends.
inline void Join(const Chunk& chunk, const SkippedMcu& mcu, const unsigned* last,
                 const Skipper& other, Skipper* one) {
  const int num_blocks = mcu.num_blocks;
  const unsigned *from = other.begins, *to = one->begins;
  for (;;) {
    while (to >= one->next) {
      if (!Goes(*one, last)) return;
      SkipAlone(chunk, mcu, one->next, one);
    }
    while (from < other.next && *from < *to) from += num_blocks;
    if (from >= other.next) return;
    if (*from == *to) break;
    to += num_blocks;
  }
  const auto count = static_cast<size_t>(other.next - from);
  one->next = one->begins + (to - one->begins);
  memcpy(one->next, from, count * sizeof(*from));
  one->next += count;
  one->stop = -1;
}

// The bits of a chunk from which and up to which blocks are passed over. A second
// skipper begins at `middle`, wherever this is, unless it is `begin`.
struct Stretch {
  unsigned begin, middle, end;
};

// Passes over blocks until `limit` of them, at most kMaxChunkBlocks, or the stretch are
// over. Fills where each block begins, and the one after the last. Returns the number
// of blocks, perhaps more than `limit`; fewer if a code does not exist.
//
// If the second skipper is never in step, its work is lost, and nothing else.
inline int SkipBlocks(const Chunk& chunk, const SkippedMcu& mcu, const Stretch& stretch,
                      int limit, unsigned* begins, unsigned* others) {
  const int64_t stop = std::min<int64_t>(stretch.end, int64_t{chunk.size} * 8) - 64;
  unsigned* const last = begins + limit;
  Skipper one = SkipperAt(chunk, mcu, stretch.begin, begins);
  one.stop = stop;
  if (stretch.middle > stretch.begin && stretch.middle < stop) {
    unsigned* const other_last = others + kMaxChunkBlocks;
    Skipper other = SkipperAt(chunk, mcu, stretch.middle, others);
    other.stop = stop;
    one.stop = stretch.middle;
    SkipInTurns(chunk, mcu, last, other_last, &one, &other);
    SkipAlone(chunk, mcu, last, &one);
    const bool middle = one.stop >= 0 && one.next <= last;
    if (middle) SkipAlone(chunk, mcu, other_last, &other);
    if (one.stop >= 0) one.stop = stop;
    if (middle && other.stop >= 0) Join(chunk, mcu, last, other, &one);
  }
  SkipAlone(chunk, mcu, last, &one);
  return static_cast<int>(one.next - begins) - 1;
}

// Adds the DC differences of MCUs that begin at these bits. Returns whether the values
// are in range.
inline bool AddDifferences(const Chunk& chunk, const SkippedMcu& mcu,
                           const unsigned* begins, int num_mcus, int* last_dc) {
  for (; num_mcus > 0; --num_mcus, begins += mcu.num_blocks) {
    for (int i = 0; i < mcu.num_blocks; ++i) {
      const DcTable& first = *mcu.parts[mcu.part_of[i]].first;
      const uint64_t bits = BitsAt(chunk.bytes, begins[i]);
      const unsigned look = first.looks[bits >> (64 - kDcLookBits)];
      int length = static_cast<int>(look & 255), size = static_cast<int>(look >> 8);
      if (TFPIPE_RARE(look == 0)) size = FindCode(first, bits, &length);
      int* last = &last_dc[mcu.part_of[i]];
      *last += ValueOf(bits << length, size);
      if (*last != static_cast<JCOEF>(*last)) return false;
    }
  }
  return true;
}

}  // namespace tfpipe

#endif
