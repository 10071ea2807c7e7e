// Skips MCUs outside the crop box, without a branch for each symbol.
//
//   FillChunk       copies a chunk of the scan without its stuffed zeros, so that no
//                   look-up tests for stuffed zeros (T.81, B.1.1.5)
//   SkipBlocks      notes the bit where each block begins. A look-up gives one or two
//                   symbols; the end of a block only selects the next table
//   AddDifferences  reads the DC differences afterwards, because no look-up needs them
//
// A look-up waits for the look-up before it. SkipBlocks therefore runs two skippers in
// turns. The second skipper begins at the middle of the chunk, at any bit. After about
// a hundred bytes its codes and components agree with those of the image. Where the
// first skipper begins an MCU at the same bit as the second skipper, the rest is known.
#ifndef TFPIPE_NATIVE_SKIP_H_
#define TFPIPE_NATIVE_SKIP_H_

#include <stdint.h>
#include <string.h>

#include <algorithm>

#include "codes.h"

namespace tfpipe {

#ifndef TFPIPE_SMALL_CHUNKS  // fuzz.py sets it: the images of fuzz.cc are small
#define TFPIPE_SMALL_CHUNKS 0
#endif

constexpr bool kSmallChunks = TFPIPE_SMALL_CHUNKS;
constexpr int kChunkBytes = kSmallChunks ? 700 : 16384;  // of the scan
constexpr int kChunkPadding = kBlockBytes + 8;  // zeros, so that a block may end late
constexpr int kMinChunkBytes = 64;              // fewer bytes are not worth a chunk
constexpr unsigned kMinChunkMcus = 2;           // fewer MCUs are not worth a chunk
constexpr unsigned kMaxChunkBlocks = kSmallChunks ? 100 : 4096;  // skipped in one call
constexpr unsigned kMinTwoSkippersBits = kSmallChunks ? 1200 : 8192;

// A chunk of the scan without its stuffed zeros. `stuffed` has, for each zero, the
// number of chunk bytes before the zero.
struct Chunk {
  const uint8_t *begin = nullptr, *end = nullptr;  // addresses in the scan
  bool is_last = false;  // a marker or the end of the data follows
  int size = 0, num_stuffed = 0;
  uint8_t bytes[kChunkBytes + kChunkPadding];
  uint16_t stuffed[kChunkBytes / 2 + 1];
};

static_assert(kChunkBytes <= 16384, "the searches below begin with steps of 8192");

// Copies bytes up to the next 0xff, or to the end, and perhaps 15 bytes more. Returns
// the address of the 0xff, or the end.
inline const uint8_t* CopyUpToFf(const uint8_t* from, const uint8_t* end, uint8_t* to) {
#ifdef __SSE2__
  for (const __m128i ff = _mm_set1_epi8(-1); end - from >= 16; from += 16, to += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    const int found = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, ff));
    if (found != 0) return from + __builtin_ctz(static_cast<unsigned>(found));
  }
#endif
  const void* byte = memchr(from, 0xff, static_cast<size_t>(end - from));
  const auto* stop = byte == nullptr ? end : static_cast<const uint8_t*>(byte);
  memcpy(to, from, static_cast<size_t>(stop - from));
  return stop;
}

// Fills a chunk from `begin` on, up to the next marker or the end of the data.
inline void FillChunk(const uint8_t* begin, const uint8_t* end, Chunk* chunk) {
  chunk->is_last = end - begin <= kChunkBytes;
  if (!chunk->is_last) end = begin + kChunkBytes;
  const uint8_t* from = begin;
  uint8_t* to = chunk->bytes;
  int num_stuffed = 0;
  while (from < end) {
    const uint8_t* ff = CopyUpToFf(from, end, to);
    to += ff - from;
    from = ff;
    if (end - from < 2) break;
    if (from[1] != 0) {
      chunk->is_last = true;
      break;
    }
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

// Returns the address in the scan of a chunk byte.
inline const uint8_t* AddressOf(const Chunk& chunk, unsigned byte) {
  int count = 0;
  for (int step = 8192; step > 0; step /= 2) {
    const int next = count + step;
    if (next <= chunk.num_stuffed && chunk.stuffed[next - 1] <= byte) count = next;
  }
  return chunk.begin + byte + count;
}

// Returns the chunk byte at an address in the scan, which must not be a stuffed zero's.
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

// The looks of a block, from StartTable and AcTable.
struct SkipLooks {
  const uint16_t *starts, *acs;
};

// The tables of a component.
struct SkippedComponent {
  SkipLooks looks;
  const DcTable* dc;
  const AcTable* ac;
};

// The blocks of an MCU. The arrays repeat the blocks: the first `cycle` blocks are
// whole MCUs, at least kGroup blocks, and kGroup + 1 blocks follow, which a group of
// look-ups may reach.
struct SkippedMcu {
  int num_blocks = 0, cycle = 0;
  SkippedComponent components[MAX_COMPS_IN_SCAN];
  int component_of[D_MAX_BLOCKS_IN_MCU + kGroup + 1];
  SkipLooks looks[D_MAX_BLOCKS_IN_MCU + kGroup + 1];
};

// Returns 57 or more bits from bit `at` on.
TFPIPE_INLINE uint64_t BitsAt(const uint8_t* bytes, unsigned at) {
  uint64_t bits;
  memcpy(&bits, bytes + (at >> 3), 8);
  return ToBigEndian(bits) << (at & 7);
}

// Returns the bits from bit `at` of the chunk on.
inline Bits BitsFrom(const Chunk& chunk, unsigned at) {
  const auto unread = static_cast<int64_t>(at & 7);
  const uint8_t* next = chunk.bytes + (at >> 3);
  return {BitsAt(next, 0) >> 8 << 8 << unread, 56 - unread, next + 7};
}

// Returns the bit of the chunk that follows the bits taken.
inline unsigned BitIn(const Chunk& chunk, const Bits& b) {
  return static_cast<unsigned>((b.next - chunk.bytes) * 8 - b.count);
}

// Finds a code of any length (T.81, F.2.2.3). Returns its symbol, or -1.
inline int FindCode(const CodeTable& table, uint64_t bits, int* length) {
  for (int i = 1; i <= 16; ++i) {
    const auto code = static_cast<int32_t>(bits >> (64 - i));
    if (code > table.last_code[i]) continue;
    *length = i;
    return table.source.huffval[(table.first_value[i] + code) & 255];
  }
  return -1;
}

// Skips blocks. Bits of `taken`:
//
//   0-7   bits taken by the group of look-ups
//   8-15  index in the block, see codes.h
struct Skipper {
  Bits b;
  unsigned at;  // first bit of the group of look-ups in the chunk
  unsigned taken;
  const uint16_t* looks;  // of the next look-up
  const SkipLooks* block;
  unsigned* begins;  // first bit of each block, and of the block after the last
  unsigned* next;    // entry of `begins` to fill
  int64_t stop;  // last bit to begin a group at; -1 after a code that does not exist
};

inline Skipper SkipperAt(const Chunk& chunk, const SkippedMcu& mcu, unsigned at,
                         unsigned* begins) {
  *begins = at;
  return {BitsFrom(chunk, at), at,     0,          mcu.looks->starts,
          mcu.looks,           begins, begins + 1, 0};
}

// Looks up the next symbols. Returns whether the table holds them.
TFPIPE_INLINE bool TakeLook(Skipper* s, unsigned* look) {
  *look = s->looks[s->b.bits >> (64 - kAcLookBits)];
  s->b.bits <<= *look & 63;
  s->taken += *look;
  return (s->taken & kStuckAdvance << 8) == 0;
}

// Selects the table of the next look-up: of the same block, or of the next block.
TFPIPE_INLINE void NextLook(Skipper* s) {
  const uint16_t *starts = s->block[1].starts, *acs = s->block->acs;
  const unsigned ends = s->taken / (kEndAdvance << 8);
  *s->next = s->at + (s->taken & 255);
  s->next += ends;
  s->block += ends;
  s->looks = __builtin_expect_with_probability(ends != 0, 1, 0.5) ? starts : acs;
  s->taken &= (ends - 1) | 255;
}

// Counts the bits of a group of look-ups.
TFPIPE_INLINE void EndGroup(const SkippedMcu& mcu, Skipper* s) {
  s->at += s->taken & 255;
  s->b.count -= s->taken & 255;
  s->taken &= ~255u;
  s->block -= s->block >= mcu.looks + mcu.cycle ? mcu.cycle : 0;
}

// Takes back the look-up that failed, and takes one symbol of any length instead.
static TFPIPE_NOINLINE void SkipSlowly(const Chunk& chunk, const SkippedMcu& mcu,
                                       unsigned look, Skipper* s) {
  unsigned index = s->taken >> 8;
  if (index == 64) {  // a full block has no code for its end
    s->at += s->taken & 255;
  } else {
    s->taken -= look;
    s->at += s->taken & 255;
    index = s->taken >> 8;
    const SkippedComponent& component =
        mcu.components[mcu.component_of[s->block - mcu.looks]];
    const uint64_t bits = BitsAt(chunk.bytes, s->at);
    int length = 0;
    const int symbol = index == 0 ? FindCode(*component.dc, bits, &length)
                                  : FindCode(*component.ac, bits, &length);
    if (symbol < 0) {
      s->stop = -1;
      s->taken = 0;
      return;
    }
    s->at += static_cast<unsigned>(length + (index == 0 ? symbol : symbol & 15));
    index += index == 0 ? 1 : AdvanceOf(symbol);
  }
  s->b = BitsFrom(chunk, s->at);
  const bool ends = index >= 64;
  *s->next = s->at;
  s->next += ends;
  s->block += ends;
  s->taken = ends ? 0 : index << 8;
  s->looks = ends ? s->block->starts : s->block->acs;
}

inline bool Goes(const Skipper& s, const unsigned* last) {
  return s.next <= last && s.at <= s.stop;
}

// Skips blocks until the skipper stops, or `last` is filled and perhaps two entries
// more.
inline void SkipAlone(const Chunk& chunk, const SkippedMcu& mcu, const unsigned* last,
                      Skipper* skipper) {
  Skipper s = *skipper;
  while (Goes(s, last)) {
    Refill(&s.b);
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

// Skips blocks with two skippers in turns until either skipper ends.
inline void SkipInTurns(const Chunk& chunk, const SkippedMcu& mcu,
                        const unsigned* first_last, const unsigned* second_last,
                        Skipper* first_skipper, Skipper* second_skipper) {
  Skipper first = *first_skipper, second = *second_skipper;
  while (Goes(first, first_last) && Goes(second, second_last)) {
    Refill(&first.b);
    Refill(&second.b);
#pragma GCC unroll 3
    for (int i = 0; i < kGroup; ++i) {
      unsigned look, second_look;
      const bool fits = TakeLook(&first, &look),
                 second_fits = TakeLook(&second, &second_look);
      if (TFPIPE_RARE(!(fits & second_fits))) {
        Skipper copy = first, second_copy = second;
        if (fits)
          NextLook(&copy);
        else
          SkipSlowly(chunk, mcu, look, &copy);
        if (second_fits)
          NextLook(&second_copy);
        else
          SkipSlowly(chunk, mcu, second_look, &second_copy);
        first = copy;
        second = second_copy;
        break;
      }
      NextLook(&first);
      NextLook(&second);
    }
    EndGroup(mcu, &first);
    EndGroup(mcu, &second);
  }
  *first_skipper = first;
  *second_skipper = second;
}

// Continues the first skipper until it begins an MCU where the second skipper began an
// MCU. From there on both are equal: appends the blocks of the second skipper, and ends
// the first.
inline void Join(const Chunk& chunk, const SkippedMcu& mcu, const unsigned* last,
                 const Skipper& second, Skipper* first) {
  const int num_blocks = mcu.num_blocks;
  const unsigned *from = second.begins, *to = first->begins;
  for (;;) {
    while (to >= first->next) {
      if (!Goes(*first, last)) return;
      SkipAlone(chunk, mcu, first->next, first);
    }
    while (from < second.next && *from < *to) from += num_blocks;
    if (from >= second.next) return;
    if (*from == *to) break;
    to += num_blocks;
  }
  const auto count = static_cast<size_t>(second.next - from);
  first->next = first->begins + (to - first->begins);
  memcpy(first->next, from, count * sizeof(*from));
  first->next += count;
  first->stop = -1;
}

// The bits of a chunk to skip. A second skipper begins at `middle`, if `middle` is not
// `begin`.
struct Stretch {
  unsigned begin, middle, end;
};

// Skips blocks to the end of the stretch, or `limit` blocks, at most kMaxChunkBlocks.
// Fills the first bit of each block, and of the block after the last. Returns the
// number of blocks, which may exceed `limit`, and is smaller if a code does not exist.
//
// The second skipper may never agree with the first skipper. The result is then the
// same, without the time saved.
inline int SkipBlocks(const Chunk& chunk, const SkippedMcu& mcu, const Stretch& stretch,
                      int limit, unsigned* begins, unsigned* second_begins) {
  const int64_t stop = std::min<int64_t>(stretch.end, int64_t{chunk.size} * 8) - 64;
  unsigned* const last = begins + limit;
  Skipper first = SkipperAt(chunk, mcu, stretch.begin, begins);
  first.stop = stop;
  if (stretch.middle > stretch.begin && stretch.middle < stop) {
    unsigned* const second_last = second_begins + kMaxChunkBlocks;
    Skipper second = SkipperAt(chunk, mcu, stretch.middle, second_begins);
    second.stop = stop;
    first.stop = stretch.middle;
    SkipInTurns(chunk, mcu, last, second_last, &first, &second);
    SkipAlone(chunk, mcu, last, &first);
    const bool at_middle = first.stop >= 0 && first.next <= last;
    if (at_middle) SkipAlone(chunk, mcu, second_last, &second);
    if (first.stop >= 0) first.stop = stop;
    if (at_middle && second.stop >= 0) Join(chunk, mcu, last, second, &first);
  }
  SkipAlone(chunk, mcu, last, &first);
  return static_cast<int>(first.next - begins) - 1;
}

// Adds the DC differences of MCUs to the last DC value of each component (T.81,
// F.2.1.3.1). Returns whether the values are in range.
inline bool AddDifferences(const Chunk& chunk, const SkippedMcu& mcu,
                           const unsigned* begins, int num_mcus, int* last_dc) {
  for (; num_mcus > 0; --num_mcus, begins += mcu.num_blocks) {
    for (int i = 0; i < mcu.num_blocks; ++i) {
      const DcTable& dc = *mcu.components[mcu.component_of[i]].dc;
      const uint64_t bits = BitsAt(chunk.bytes, begins[i]);
      const unsigned look = dc.looks[bits >> (64 - kDcLookBits)];
      unsigned count = look & 255, size = look >> 8;
      if (TFPIPE_RARE(look == 0)) {
        int length = 0;
        size = static_cast<unsigned>(FindCode(dc, bits, &length));
        count = static_cast<unsigned>(length) + size;
      }
      int* last = &last_dc[mcu.component_of[i]];
      *last += LastValueOf(bits, count, size);
      if (*last != static_cast<JCOEF>(*last)) return false;
    }
  }
  return true;
}

}  // namespace tfpipe

#endif
