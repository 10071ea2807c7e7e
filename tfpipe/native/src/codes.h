// Tables of Huffman codes for fast decoding, and the blocks of a JPEG that are read or
// skipped over with them.
//
// Each look-up depends on the one before, and this chain sets the speed. One look-up
// therefore gives two symbols where they fit; in a block that is skipped over, their
// values need not fit. 8 bytes are read at a time.
#ifndef TFPIPE_NATIVE_CODES_H_
#define TFPIPE_NATIVE_CODES_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "external/libjpeg_turbo/jpeglib.h"

#include "platform.h"

namespace tfpipe {

// Bits that are looked up at once: the tables of an image must stay in the L1 cache.
constexpr int kAcLookBits = 11;
// Bits that are looked up for the first coefficient of a block, without its value.
constexpr int kDcLookBits = 9;
constexpr int kNumAcLooks = 1 << kAcLookBits;
// The places that the end of a block advances: more than a block has. What is not in a
// window advances even further.
constexpr unsigned kEndAdvance = 128, kLongAdvance = 255;
constexpr int kBadIndex = 1 << 10;  // places that a code advances which does not exist
constexpr int kMaxSkipBits = 18;  // bits, so that a refill of 56 serves three look-ups
// What a block that is skipped over advances by a code that is in no window. This bit
// is also set in the place where a block ends without a code for its end.
constexpr unsigned kStuckAdvance = 64;

// Place of each coefficient in a block. A damaged run may point up to 15 past the last,
// and the end of a block by kEndAdvance.
struct Zigzag {
  uint8_t places[64 + kEndAdvance + 16];
};

constexpr Zigzag MakeZigzag() {
  Zigzag zigzag = {};
  int row = 0, column = 0;
  for (unsigned i = 0; i < sizeof(zigzag.places); ++i) {
    if (i >= 64) row = column = 7;
    zigzag.places[i] = static_cast<uint8_t>(8 * row + column);
    const bool up = (row + column) % 2 == 0;
    if (up && column == 7) {
      ++row;
    } else if (!up && row == 7) {
      ++column;
    } else {
      row = up ? (row > 0 ? row - 1 : 0) : row + 1;
      column = up ? column + 1 : (column > 0 ? column - 1 : 0);
    }
  }
  return zigzag;
}

constexpr Zigzag kZigzag = MakeZigzag();

// What every table has: its source, and what finds a code of any length.
struct CodeTable {
  bool known = false;
  JHUFF_TBL source;
  int32_t last_code[17];  // of each length, or -1
  int32_t first_value[17];
};

// Codes of the first coefficients of blocks. An entry of `looks` holds, from its lowest
// bit: the length of the code (8 bits) and the number of bits of the value. It is 0 for
// codes that are longer or do not exist.
struct DcTable : CodeTable {
  uint16_t looks[1 << kDcLookBits];
};

// Codes of the other coefficients.
//
// An entry of `pairs` holds, from its lowest bit: the bits to consume (6 bits), the
// places to advance (8 bits), the places to the first coefficient (5 bits), the second
// coefficient (5 bits) and the first one (8 bits). One coefficient alone stands as a
// second one of 0 in the same place, which the first one replaces. If the value is not
// in the window, then the places are kLongAdvance, the bits are those of the code, and
// the number of bits of the value stands in place of the coefficient. All but the
// places are 0 for a longer code.
//
// An entry of `skips` holds the bits to consume (8 bits) and the places to advance:
// kStuckAdvance and no bits for what is in no window.
struct AcTable : CodeTable {
  uint32_t pairs[kNumAcLooks];
  uint16_t skips[kNumAcLooks];
};

// How blocks begin that are skipped over: the code of the first coefficient, and the
// next one. Entries are as in `skips`.
struct StartTable {
  bool known = false;
  JHUFF_TBL first, other;
  uint16_t looks[kNumAcLooks];
};

// Returns a value of `size` bits, which begin at the highest bit.
TFPIPE_INLINE int32_t ValueOf(uint64_t bits, int size) {
  const auto value = static_cast<int32_t>(bits >> 1 >> (63 - size));
  // A first bit of 0 stands for a negative value.
  const auto negative = static_cast<int32_t>(~static_cast<int64_t>(bits) >> 63);
  return value + (negative & (1 - (1 << size)));
}

// Decoders take any symbol without a value for the end of a block, except 16 zeros.
inline unsigned AdvanceOf(int symbol) {
  if ((symbol & 15) == 0 && symbol != 0xf0) return kEndAdvance;
  return static_cast<unsigned>(symbol >> 4) + 1;
}

inline bool IsSame(const JHUFF_TBL& one, const JHUFF_TBL& other) {
  return memcmp(one.bits, other.bits, sizeof(one.bits)) == 0 &&
         memcmp(one.huffval, other.huffval, sizeof(one.huffval)) == 0;
}

// Returns whether a table holds this source.
inline bool Holds(const CodeTable& table, const JHUFF_TBL& source) {
  return table.known && IsSame(table.source, source);
}

// Copies the source, and calls `fill` with each code, its length and its symbol.
template <typename Fill>
inline void FillCodes(const JHUFF_TBL& source, CodeTable* table, const Fill& fill) {
  table->known = true;
  table->source = source;
  int code = 0, value = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    table->first_value[length] = value - code;
    for (int i = 0; i < source.bits[length]; ++i, ++code, ++value)
      fill(code, length, source.huffval[value]);
    table->last_code[length] = source.bits[length] ? code - 1 : -1;
  }
}

inline void FillTable(const JHUFF_TBL& source, DcTable* table) {
  if (Holds(*table, source)) return;
  memset(table->looks, 0, sizeof(table->looks));
  FillCodes(source, table, [table](int code, int length, int symbol) {
    const int rest = kDcLookBits - length;
    for (int i = 0; rest >= 0 && i < 1 << rest; ++i)
      table->looks[(code << rest) + i] = static_cast<uint16_t>(symbol << 8 | length);
  });
}

// What a window adds that begins after another symbol and has fewer bits: tables of 1,
// 2, 4,
// ... entries, the one for n bits from entry 1 << n on. An entry is 0 if nothing fits.
// No symbol but the end of a block and 16 zeros has less than two bits.
constexpr int kMaxAfterBits = kAcLookBits - 2;

struct After {
  uint32_t pairs[2 << kMaxAfterBits];  // with the value in the place of the second one
  uint32_t skips[2 << kMaxAfterBits];  // and the bits that tell it (from bit 16)
};

// Keeps of each table what fits in one bit less.
inline void FillShorter(After* after) {
  for (unsigned bits = kMaxAfterBits; bits-- > 0;) {
    for (unsigned i = 1u << bits; i < 2u << bits; ++i) {
      const uint32_t pair = after->pairs[2 * i], skip = after->skips[2 * i];
      after->pairs[i] = (pair & 63) <= bits ? pair : 0;
      after->skips[i] = skip >> 16 <= bits ? skip : 0;
    }
  }
}

// Returns the entry of `pairs` of one symbol.
inline uint32_t OneSymbol(int value, unsigned places, unsigned bits) {
  return static_cast<uint32_t>(value) << 24 |
         (places == kEndAdvance ? 1 : places) << 14 | places << 6 | bits;
}

// Fills the windows that begin with a code.
inline void FillLooks(int code, int length, int symbol, const After& after,
                      AcTable* table) {
  const int rest = kAcLookBits - length, size = symbol & 15, left = rest - size;
  const unsigned places = AdvanceOf(symbol), begin = static_cast<unsigned>(code)
                                                     << rest;
  const auto bits = static_cast<unsigned>(length + size);
  if (left <= 0 || left > kMaxAfterBits || places == kEndAdvance || size > 7) {
    const bool inside = left >= 0 && size <= 7;
    const uint32_t outside = static_cast<uint32_t>(size) << 24 | places << 14 |
                             kLongAdvance << 6 | static_cast<unsigned>(length);
    const auto skipped = static_cast<uint16_t>(places << 8 | bits);
    for (unsigned i = 0; i < 1u << rest; ++i) {
      const int value = ValueOf(uint64_t{i} << 32 << (32 - rest), size);
      table->pairs[begin + i] = inside ? OneSymbol(value, places, bits) : outside;
      if (bits <= kMaxSkipBits) table->skips[begin + i] = skipped;
    }
    return;
  }
  const uint32_t *pairs = &after.pairs[1u << left], *skips = &after.skips[1u << left];
  for (unsigned number = 0; number < 1u << size; ++number) {
    const int value = ValueOf(uint64_t{number} << 32 << (32 - size), size);
    const uint32_t pair = OneSymbol(value, places, bits), skip = places << 8 | bits;
    uint32_t* to = &table->pairs[begin + (number << left)];
    uint16_t* skips_to = &table->skips[begin + (number << left)];
    for (unsigned i = 0; i < 1u << left; ++i) {
      to[i] = pair + pairs[i];
      const uint32_t both = skip + (skips[i] & 0xffff);
      skips_to[i] = static_cast<uint16_t>((both & 255) <= kMaxSkipBits ? both : skip);
    }
  }
}

// Fills what may follow, from the codes of the other coefficients.
inline void FillAfter(const JHUFF_TBL& source, After* after) {
  CodeTable unused;
  memset(after, 0, sizeof(*after));
  FillCodes(source, &unused, [after](int code, int length, int symbol) {
    const int rest = kMaxAfterBits - length, size = symbol & 15;
    const auto bits = static_cast<unsigned>(length + size);
    const unsigned places = AdvanceOf(symbol);
    for (unsigned i = 0; rest >= 0 && i < 1u << rest; ++i) {
      const unsigned at =
          (1u << kMaxAfterBits) + (static_cast<unsigned>(code) << rest) + i;
      after->skips[at] = static_cast<unsigned>(length) << 16 | places << 8 | bits;
      if (size > rest) continue;
      const int value = ValueOf(uint64_t{i} << 32 << (32 - rest), size);
      if (value < -16 || value > 15) continue;
      after->pairs[at] = static_cast<uint32_t>(value & 31) << 19 | places << 6 | bits;
    }
  });
  FillShorter(after);
}

inline void FillTable(const JHUFF_TBL& source, AcTable* table) {
  if (Holds(*table, source)) return;
  After after;
  FillAfter(source, &after);
  for (auto& pair : table->pairs) pair = kLongAdvance << 6;
  for (auto& skip : table->skips) skip = kStuckAdvance << 8;
  FillCodes(source, table, [&](int code, int length, int symbol) {
    if (length <= kAcLookBits) FillLooks(code, length, symbol, after, table);
  });
}

inline void FillTable(const JHUFF_TBL& first, const JHUFF_TBL& other,
                      StartTable* table) {
  if (table->known && IsSame(table->first, first) && IsSame(table->other, other))
    return;
  table->known = true;
  table->first = first;
  table->other = other;
  After after;
  FillAfter(other, &after);
  // One place more, since a block stands at place 0 here.
  for (auto& look : table->looks) look = (kStuckAdvance + 1) << 8;
  CodeTable unused;
  FillCodes(first, &unused, [&](int code, int length, int size) {
    const int rest = kAcLookBits - length, left = rest - size;
    const auto bits = static_cast<unsigned>(length + size);
    if (rest < 0 || bits > kMaxSkipBits) return;
    uint16_t* to = &table->looks[static_cast<unsigned>(code) << rest];
    for (unsigned i = 0; i < 1u << rest; ++i) {
      uint32_t next = 0;
      if (left > 0) {
        const int known = left < kMaxAfterBits ? left : kMaxAfterBits;
        next =
            after.skips[(1u << known) + ((i & ((1u << left) - 1)) >> (left - known))];
      }
      const uint32_t alone = 1 << 8 | bits, both = alone + (next & 0xffff);
      to[i] = static_cast<uint16_t>((both & 255) <= kMaxSkipBits ? both : alone);
    }
  });
}

// The next bits, from the highest, of which `count` are valid, and the address of the
// next byte. It is passed by value, so that all of it stays in registers.
struct Bits {
  uint64_t bits;
  int64_t count;
  const uint8_t* next;
};

// Where the codes end, and the zero bits that were added after the end.
struct CodesEnd {
  const uint8_t* end;
  int missing;
};

// Reads byte by byte, near a 0xff or the end.
static TFPIPE_NOINLINE Bits RefillSlowly(CodesEnd* end, Bits b) {
  for (; b.count < 56; b.count += 8) {
    uint64_t byte = 0;
    if (b.next < end->end && *b.next != 0xff) {
      byte = *b.next++;
    } else if (end->end - b.next >= 2 && b.next[1] == 0) {
      byte = 0xff;
      b.next += 2;
    } else {
      end->missing += 8;
    }
    b.bits |= byte << (56 - b.count);
  }
  return b;
}

// Makes `count` at least 56. A byte of which a part was read before is read again.
TFPIPE_INLINE void Refill(CodesEnd* end, Bits* b) {
  uint64_t bytes = ~uint64_t{0};
  if (end->end - b->next >= 8) memcpy(&bytes, b->next, 8);
  if (TFPIPE_RARE((~bytes - 0x0101010101010101u) & bytes & 0x8080808080808080u)) {
    *b = RefillSlowly(end, *b);
    return;
  }
  b->bits |= ToBigEndian(bytes) >> b->count;
  b->next += (63 - b->count) >> 3;
  b->count |= 56;
}

TFPIPE_INLINE void Drop(Bits* b, uint64_t count) {
  b->bits <<= count & 63;
  b->count -= static_cast<int64_t>(count & 63);
}

// A code and its value.
struct Symbol {
  int symbol;  // or -1: there is no such code
  int32_t value;
};

// Takes a code of any length, and its value, whose number of bits is a part of the
// symbol.
static TFPIPE_NOINLINE Symbol TakeSlowly(CodesEnd* end, const CodeTable& table,
                                         int size_mask, Bits* bits) {
  Bits b = *bits;
  int length = 1;
  Refill(end, &b);
  while (length <= 16 &&
         static_cast<int32_t>(b.bits >> (64 - length)) > table.last_code[length]) {
    ++length;
  }
  Symbol symbol = {-1, 0};
  if (length <= 16) {
    const auto code = static_cast<int32_t>(b.bits >> (64 - length));
    symbol.symbol = table.source.huffval[(table.first_value[length] + code) & 255];
    const int size = symbol.symbol & size_mask;
    Drop(&b, static_cast<unsigned>(length));
    symbol.value = ValueOf(b.bits, size);
    Drop(&b, static_cast<unsigned>(size));
  }
  Refill(end, &b);
  *bits = b;
  return symbol;
}

// Takes the first coefficient of a block, as the difference to the last one. Returns
// whether its code exists.
TFPIPE_INLINE bool TakeDc(CodesEnd* end, const DcTable& table, Bits* b,
                          int* difference) {
  const int look = table.looks[b->bits >> (64 - kDcLookBits)];
  if (TFPIPE_RARE(look == 0)) {
    Bits copy = *b;
    const Symbol symbol = TakeSlowly(end, table, 255, &copy);
    *b = copy;
    *difference = symbol.value;
    return symbol.symbol >= 0;
  }
  Drop(b, static_cast<unsigned>(look & 255));
  const int size = look >> 8;
  *difference = ValueOf(b->bits, size);
  Drop(b, static_cast<unsigned>(size));
  return true;
}

// Takes one symbol after the first of a block. Returns the place of the next
// coefficient.
template <bool kWanted>
TFPIPE_INLINE int TakeLongAc(CodesEnd* end, const AcTable& table, int place, Bits* b,
                             JCOEF* block) {
  Bits copy = *b;
  const Symbol symbol = TakeSlowly(end, table, 15, &copy);
  *b = copy;
  if (symbol.symbol < 0) return kBadIndex;
  const auto places = static_cast<int>(AdvanceOf(symbol.symbol));
  if (kWanted && places < 64) {
    block[kZigzag.places[place + places - 1]] = static_cast<JCOEF>(symbol.value);
  }
  return place + places;
}

// Returns whether a block ends in this place, with no code too many.
TFPIPE_INLINE bool IsEnd(int place) {
  return place == 64 || static_cast<unsigned>(place) - kEndAdvance < 64;
}

TFPIPE_INLINE void TakePair(uint32_t pair, int place, int next, Bits* b, JCOEF* block) {
  block[kZigzag.places[next - 1]] =
      static_cast<JCOEF>(static_cast<int32_t>(pair << 8) >> 27);
  block[kZigzag.places[place + static_cast<int>(pair >> 14 & 31) - 1]] =
      static_cast<JCOEF>(static_cast<int32_t>(pair) >> 24);
  Drop(b, pair);
}

// Reads the coefficients after the first one into a block of zeros. Returns whether
// their codes exist.
TFPIPE_INLINE bool TakeAcs(CodesEnd* end, const AcTable& table, Bits* b, JCOEF* block) {
  int place = 1;
  for (;;) {
    uint32_t pair;
    int next;
    Refill(end, b);
    // Five look-ups of eleven bits for each refill of 56.
#pragma GCC unroll 5
    for (int i = 0; i < 5; ++i) {
      pair = table.pairs[b->bits >> (64 - kAcLookBits)];
      next = place + static_cast<int>(pair >> 6 & 255);
      if (next >= 64) break;
      TakePair(pair, place, next, b, block);
      place = next;
    }
    if (next < 64) continue;
    if (IsEnd(next)) {
      TakePair(pair, place, next, b, block);
      return true;
    }
    const unsigned length = pair & 63;
    if ((pair >> 6 & 255) == kLongAdvance && length > 0) {
      Refill(end, b);
      Drop(b, length);
      const auto size = static_cast<int>(pair >> 24);
      place += static_cast<int>(pair >> 14 & 31);
      block[kZigzag.places[place - 1]] = static_cast<JCOEF>(ValueOf(b->bits, size));
      Drop(b, static_cast<unsigned>(size));
      if (place >= 64) return true;
      continue;
    }
    // A longer code, or the second symbol belongs to the next block.
    place = TakeLongAc<true>(end, table, place, b, block);
    if (place >= 64) return place < kBadIndex;
  }
}

// Passes over the coefficients after the first one. Returns whether their codes exist.
TFPIPE_INLINE bool SkipAcs(CodesEnd* end, const AcTable& table, Bits* b) {
  int place = 1;
  for (;;) {
    unsigned skip;
    int next;
    Refill(end, b);
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      skip = table.skips[b->bits >> (64 - kAcLookBits)];
      next = place + static_cast<int>(skip >> 8);
      if (next >= 64) break;
      Drop(b, skip);
      place = next;
    }
    if (next < 64) continue;
    if (IsEnd(next)) {
      Drop(b, skip);
      return true;
    }
    place = TakeLongAc<false>(end, table, place, b, nullptr);
    if (place >= 64) return place < kBadIndex;
  }
}

// Reads one block, into `block` if it is wanted. Returns whether it was sound.
template <bool kWanted>
TFPIPE_INLINE bool TakeBlock(CodesEnd* end, const DcTable& first, const AcTable& other,
                             int* last, Bits* b, JCOEF* block) {
  int difference;
  Refill(end, b);
  if (!TakeDc(end, first, b, &difference)) return false;
  *last += difference;
  if (*last != static_cast<JCOEF>(*last)) return false;
  if (!kWanted) return SkipAcs(end, other, b);
  block[0] = static_cast<JCOEF>(*last);
  return TakeAcs(end, other, b, block);
}

}  // namespace tfpipe

#endif
