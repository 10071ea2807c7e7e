// Huffman tables for fast decoding, and functions that read or skip a block with them
// (ITU T.81, F.2.2).
//
// A look-up waits for the look-up before it, and the chain of look-ups sets the speed.
// One look-up therefore gives two symbols wherever both fit into its entry. Bits and
// advances of the look-ups are summed in one number, so that a single test finds the
// end of a block. A skipped block needs no values, so the values need not fit.
//
// Words of this file:
//
//   symbol    the byte behind a code (HUFFVAL in T.81): for DC the size of the value,
//             for AC the run of zeros (high 4 bits) and the size of the value (low 4)
//   size      number of bits of a value (SSSS in T.81)
//   index     where a coefficient is in zigzag order, 0 to 63 (K in T.81)
//   advance   indices from one coefficient to the next: the run of zeros plus 1
//   look      entry of a table, found by the next bits of the scan
#ifndef TFPIPE_NATIVE_CODES_H_
#define TFPIPE_NATIVE_CODES_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "external/libjpeg_turbo/jpeglib.h"

#include "platform.h"

namespace tfpipe {

// Bits of a look-up. The tables of an image must stay in the L1 cache.
constexpr int kAcLookBits = 11;
constexpr int kDcLookBits = 9;
constexpr int kNumAcLooks = 1 << kAcLookBits;

// Bits of the codes and values of a look, at most: a refill of 56 bits serves three
// looks.
constexpr int kMaxLookBits = 18;
constexpr int kGroup = 3;

// Advances beyond the 64 coefficients of a block tell special cases apart:
//
//   kStuckAdvance  the code is not in a look, and is taken slowly. The bit is also set
//                  at index 64, the end of a full block without an end code
//   kEndAdvance    the code ends the block (EOB in T.81)
//   kBadIndex      the code does not exist; an index and not an advance
constexpr unsigned kStuckAdvance = 64, kEndAdvance = 128;
constexpr uint64_t kBadIndex = 1 << 10;

// Index in a block, row by row, of each coefficient in zigzag order (T.81, A.3.6). A
// damaged run may point up to 15 past the last coefficient, the end of a block by
// kEndAdvance. All such indices lead to the last coefficient.
struct Zigzag {
  uint8_t indices[64 + kEndAdvance + 16];
};

constexpr Zigzag MakeZigzag() {
  Zigzag zigzag = {};
  int row = 0, column = 0;
  for (unsigned i = 0; i < sizeof(zigzag.indices); ++i) {
    if (i >= 64) row = column = 7;
    zigzag.indices[i] = static_cast<uint8_t>(8 * row + column);
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

// The part of each table that finds a code of any length: MAXCODE, and VALPTR minus
// MINCODE, of T.81, F.2.2.3.
struct CodeTable {
  bool filled = false;
  JHUFF_TBL source;
  int32_t last_code[17];  // of each length, or -1
  int32_t first_value[17];
};

// Codes of DC coefficients. A look is 0 if the code is longer or does not exist.
//
//   bits  content of a look
//   0-7   bits of the code and its value
//   8-15  size of the value, whose bits follow the code
struct DcTable : CodeTable {
  uint16_t looks[1 << kDcLookBits];
};

// All but EOB and ZRL have at least 2 bits, the code and its value, so a second symbol
// has kMaxAfterBits at most.
constexpr int kMaxAfterBits = kAcLookBits - 2;

// The looks of a second AC symbol in the bits that the first symbol leaves: tables of
// 1, 2, 4, ... entries. The table for n bits begins at entry 1 << n. An entry is 0 if
// no symbol fits.
struct After {
  uint32_t pairs[2 << kMaxAfterBits];  // bits 0-24 of `pairs`, with the second value
  uint32_t skips[2 << kMaxAfterBits];  // bits of `skips`; from bit 16 the code's length
};

// Codes of AC coefficients, to read them and to skip them.
//
//   bits   a look of `pairs` with
//          one or two symbols        a long first value  no code, or more than
//                                                        kMaxLookBits
//   0-5    bits of codes and values  the same            0
//   6      0                         1: kLongValue       0
//   8-15   advance of all symbols    the same            kStuckAdvance
//   16-19  zeros before the first    the same            0
//   20-24  second value, signed      0                   0
//   25-31  first value, signed       size of the value   0
//
// A single symbol stands as two symbols with one index: the second value, 0, is stored
// before the first value, which replaces the 0. A long value has more than
// kMaxValueBits bits, or bits outside of the look-up.
//
//   bits   a look of `skips` with
//          one or two symbols        no code, or more than kMaxLookBits
//   0-7    bits of codes and values  0
//   8-15   advance of all symbols    kStuckAdvance
constexpr uint32_t kLongValue = 64;
constexpr int kMaxValueBits = 6;

struct AcTable : CodeTable {
  uint32_t pairs[kNumAcLooks];
  uint16_t skips[kNumAcLooks];
  After after;  // to fill `pairs`, `skips` and a StartTable
};

// How skipped blocks begin: the DC code, and an AC code if both fit. Looks are those of
// `skips`, with an advance of 1 for the DC coefficient.
struct StartTable {
  bool filled = false;
  JHUFF_TBL dc, ac;
  uint16_t looks[kNumAcLooks];
};

// Returns the value of `size` bits, from the highest bit of `bits` on: RECEIVE and
// EXTEND of T.81, F.2.2.1 and F.2.2.4.
TFPIPE_INLINE int32_t ValueOf(uint64_t bits, int size) {
  const auto value = static_cast<int32_t>(bits >> 1 >> (63 - size));
  // A highest bit of 0 stands for a negative value.
  const auto negative = static_cast<int32_t>(~static_cast<int64_t>(bits) >> 63);
  return value + (negative & (1 - (1 << size)));
}

// Returns the value of `size` bits that ends `count` bits.
TFPIPE_INLINE int32_t LastValueOf(uint64_t bits, unsigned count, unsigned size) {
  return ValueOf(bits << (count - size), static_cast<int>(size));
}

// Returns the advance of an AC symbol. Of the symbols without a value, T.81, F.1.2.2,
// has only 16 zeros (ZRL) and the end (EOB). Decoders take all others for EOB too.
inline unsigned AdvanceOf(int symbol) {
  if ((symbol & 15) == 0 && symbol != 0xf0) return kEndAdvance;
  return static_cast<unsigned>(symbol >> 4) + 1;
}

inline bool IsSame(const JHUFF_TBL& a, const JHUFF_TBL& b) {
  return memcmp(a.bits, b.bits, sizeof(a.bits)) == 0 &&
         memcmp(a.huffval, b.huffval, sizeof(a.huffval)) == 0;
}

// Returns whether the table is filled from the source.
inline bool Holds(const CodeTable& table, const JHUFF_TBL& source) {
  return table.filled && IsSame(table.source, source);
}

// Copies the source, and calls `fill` with each code, its length and its symbol. Codes
// follow from the numbers of codes of each length (T.81, C.2).
template <typename Fill>
inline void FillCodes(const JHUFF_TBL& source, CodeTable* table, const Fill& fill) {
  table->filled = true;
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
    const auto look = static_cast<uint16_t>(symbol << 8 | (length + symbol));
    for (int i = 0; rest >= 0 && i < 1 << rest; ++i)
      table->looks[(code << rest) + i] = look;
  });
}

// Fills each table from the table for one bit more.
inline void FillShorter(After* after) {
  for (unsigned bits = kMaxAfterBits; bits-- > 0;) {
    for (unsigned i = 1u << bits; i < 2u << bits; ++i) {
      const uint32_t pair = after->pairs[2 * i], skip = after->skips[2 * i];
      after->pairs[i] = (pair & 63) <= bits ? pair : 0;
      after->skips[i] = skip >> 16 <= bits ? skip : 0;
    }
  }
}

// Returns the look of `pairs` for one symbol.
inline uint32_t OneSymbol(int value, unsigned advance, unsigned bits) {
  const unsigned zeros = advance == kEndAdvance ? 0 : advance - 1;
  return static_cast<uint32_t>(value) << 25 | zeros << 16 | advance << 8 | bits;
}

// Returns the look of `skips` for a symbol, with a second symbol if both fit.
inline uint16_t WithNext(uint32_t single, uint32_t next) {
  const uint32_t both = single + (next & 0xffff);
  return static_cast<uint16_t>((both & 255) <= kMaxLookBits ? both : single);
}

// Copies the first `count` looks until all `total` looks are filled.
inline void Repeat(uint16_t* looks, unsigned count, unsigned total) {
  for (; count < total; count *= 2)
    memcpy(looks + count, looks, count * sizeof(*looks));
}

// Fills all looks that begin with a code.
inline void FillLooks(int code, int length, int symbol, AcTable* table) {
  const int rest = kAcLookBits - length, size = symbol & 15, left = rest - size;
  const unsigned advance = AdvanceOf(symbol);
  const auto bits = static_cast<unsigned>(length + size);
  const uint32_t skip = advance << 8 | bits;
  uint32_t* __restrict pairs = &table->pairs[static_cast<unsigned>(code) << rest];
  uint16_t* __restrict skips = &table->skips[static_cast<unsigned>(code) << rest];
  if (left <= 0 || left > kMaxAfterBits || advance == kEndAdvance ||
      size > kMaxValueBits) {
    if (bits > kMaxLookBits) return;
    const bool is_long = left < 0 || size > kMaxValueBits;
    for (unsigned i = 0; i < 1u << rest; ++i) {
      const int value = ValueOf(uint64_t{i} << 32 << (32 - rest), size);
      pairs[i] = is_long ? OneSymbol(size, advance, bits) | kLongValue
                         : OneSymbol(value, advance, bits);
      skips[i] = static_cast<uint16_t>(skip);
    }
    return;
  }
  const unsigned count = 1u << left;
  const uint32_t* __restrict next_pairs = &table->after.pairs[count];
  const uint32_t* __restrict next_skips = &table->after.skips[count];
  for (unsigned i = 0; i < count; ++i) skips[i] = WithNext(skip, next_skips[i]);
  Repeat(skips, count, 1u << rest);
  for (unsigned value_bits = 0; value_bits < 1u << size; ++value_bits) {
    const int value = ValueOf(uint64_t{value_bits} << 32 << (32 - size), size);
    const uint32_t pair = OneSymbol(value, advance, bits);
    for (unsigned i = 0; i < count; ++i) *pairs++ = pair + next_pairs[i];
  }
}

// Fills the looks of second symbols.
inline void FillAfter(const JHUFF_TBL& source, After* after) {
  CodeTable unused;
  memset(after, 0, sizeof(*after));
  FillCodes(source, &unused, [after](int code, int length, int symbol) {
    const int rest = kMaxAfterBits - length, size = symbol & 15;
    const auto bits = static_cast<unsigned>(length + size);
    const unsigned advance = AdvanceOf(symbol);
    for (unsigned i = 0; rest >= 0 && i < 1u << rest; ++i) {
      const unsigned at =
          (1u << kMaxAfterBits) + (static_cast<unsigned>(code) << rest) + i;
      after->skips[at] = static_cast<unsigned>(length) << 16 | advance << 8 | bits;
      if (size > rest) continue;
      const int value = ValueOf(uint64_t{i} << 32 << (32 - rest), size);
      if (value < -16 || value > 15) continue;
      after->pairs[at] = static_cast<uint32_t>(value & 31) << 20 | advance << 8 | bits;
    }
  });
  FillShorter(after);
}

inline void FillTable(const JHUFF_TBL& source, AcTable* table) {
  if (Holds(*table, source)) return;
  FillAfter(source, &table->after);
  for (auto& pair : table->pairs) pair = kStuckAdvance << 8;
  for (auto& skip : table->skips) skip = kStuckAdvance << 8;
  FillCodes(source, table, [table](int code, int length, int symbol) {
    if (length <= kAcLookBits) FillLooks(code, length, symbol, table);
  });
}

inline void FillTable(const JHUFF_TBL& dc, const AcTable& ac, StartTable* table) {
  if (table->filled && IsSame(table->dc, dc) && IsSame(table->ac, ac.source)) return;
  table->filled = true;
  table->dc = dc;
  table->ac = ac.source;
  // Plus 1 for the DC coefficient.
  for (auto& look : table->looks) look = (kStuckAdvance + 1) << 8;
  CodeTable unused;
  FillCodes(dc, &unused, [&](int code, int length, int size) {
    const int rest = kAcLookBits - length, left = std::max(rest - size, 0);
    const auto bits = static_cast<unsigned>(length + size);
    if (rest < 0 || bits > kMaxLookBits) return;
    const int used = std::min(left, kMaxAfterBits);
    const uint32_t* next = &ac.after.skips[1u << used];
    uint16_t* to = &table->looks[static_cast<unsigned>(code) << rest];
    for (unsigned i = 0; i < 1u << left; ++i)
      to[i] = WithNext(1 << 8 | bits, next[i >> (left - used)]);
    Repeat(to, 1u << left, 1u << rest);
  });
}

// A position in the scan: the next bits, from the highest on, of which `count` are
// valid, and the address of the next byte. Functions copy the struct, so that all of it
// stays in registers.
struct Bits {
  uint64_t bits;
  int64_t count;
  const uint8_t* next;
};

// Bytes of a block, at most, and those that Refill reads ahead: a DC code of 32 bits
// with its value, and 63 AC codes of 31 bits.
constexpr int kBlockBytes = 264;

// Makes `count` at least 56. The byte that was read in part is read again. No stuffed
// zero (T.81, B.1.1.5) may be in the bytes.
TFPIPE_INLINE void Refill(Bits* b) {
  uint64_t bytes;
  memcpy(&bytes, b->next, 8);
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
  int symbol;  // -1 if the code does not exist
  int32_t value;
};

// Takes a code of any length, by DECODE of T.81, F.2.2.3, and its value. `size_mask`
// selects the bits of the symbol with the size of the value.
static TFPIPE_NOINLINE Symbol TakeSlowly(const CodeTable& table, int size_mask,
                                         Bits* bits) {
  Bits b = *bits;
  int length = 1;
  Refill(&b);
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
  Refill(&b);
  *bits = b;
  return symbol;
}

// Takes the difference of a DC coefficient to the last one (T.81, F.2.2.1). Returns
// whether the code exists.
TFPIPE_INLINE bool TakeDc(const DcTable& table, Bits* b, int* difference) {
  const unsigned look = table.looks[b->bits >> (64 - kDcLookBits)];
  if (TFPIPE_RARE(look == 0)) {
    Bits copy = *b;
    const Symbol symbol = TakeSlowly(table, 255, &copy);
    *b = copy;
    *difference = symbol.value;
    return symbol.symbol >= 0;
  }
  *difference = LastValueOf(b->bits, look & 255, look >> 8);
  Drop(b, look);
  return true;
}

// Takes one AC symbol of any length. Returns the index of the next coefficient.
template <bool kWanted>
TFPIPE_INLINE uint64_t TakeLongAc(const AcTable& table, uint64_t index, Bits* b,
                                  JCOEF* block) {
  Bits copy = *b;
  const Symbol symbol = TakeSlowly(table, 15, &copy);
  *b = copy;
  if (symbol.symbol < 0) return kBadIndex;
  const unsigned advance = AdvanceOf(symbol.symbol);
  if (kWanted && advance < 64) {
    block[kZigzag.indices[index + advance - 1]] = static_cast<JCOEF>(symbol.value);
  }
  return index + advance;
}

// Returns whether a block ends at the index, without a code too many.
TFPIPE_INLINE bool IsEnd(uint64_t index) {
  return index == 64 || index - kEndAdvance < 64;
}

// Kept out of the loop of TakeAcs, to leave it small.
static TFPIPE_NOINLINE int32_t LongValueOf(uint64_t bits, uint32_t pair) {
  return LastValueOf(bits, pair & 63, pair >> 25);
}

// Stores the coefficients of a look of `pairs`, and removes its bits.
TFPIPE_INLINE void TakePair(uint32_t pair, uint64_t index, uint64_t next,
                            uint64_t* bits, JCOEF* block) {
  int32_t value = static_cast<int32_t>(pair) >> 25;
  if (TFPIPE_RARE(pair & kLongValue)) value = LongValueOf(*bits, pair);
  block[kZigzag.indices[next - 1]] =
      static_cast<JCOEF>(static_cast<int32_t>(pair << 7) >> 27);
  block[kZigzag.indices[index + (pair >> 16 & 15)]] = static_cast<JCOEF>(value);
  *bits <<= pair & 63;
}

// Reads the AC coefficients of a block of zeros (T.81, F.2.2.2). Returns whether the
// codes exist. Bits of `taken`:
//
//   0-5   bits taken since the refill
//   6-7   kLongValue, up to kGroup times
//   8-15  index in the block
TFPIPE_INLINE bool TakeAcs(const AcTable& table, Bits* b, JCOEF* block) {
  uint64_t index = 1, next = 1;
  for (;;) {
    Refill(b);
    uint64_t bits = b->bits;
    uint32_t pair = 0, taken = static_cast<uint32_t>(index) << 8;
    int num_looks = 0;
#pragma GCC unroll 3
    for (; num_looks < kGroup; ++num_looks) {
      pair = table.pairs[bits >> (64 - kAcLookBits)];
      const uint32_t sum = taken + pair;
      next = sum >> 8 & 255;
      if (sum & (kStuckAdvance | kEndAdvance) << 8) break;
      TakePair(pair, index, next, &bits, block);
      taken = sum;
      index = next;
    }
    b->bits = bits;
    b->count -= taken & 63;
    if (num_looks == kGroup) continue;
    if (IsEnd(next)) {
      TakePair(pair, index, next, &b->bits, block);
      b->count -= pair & 63;
      return true;
    }
    // The code is longer, or the second symbol belongs to the next block.
    index = TakeLongAc<true>(table, index, b, block);
    if (index >= 64) return index < kBadIndex;
  }
}

// Skips the AC coefficients of a block. Returns whether the codes exist.
TFPIPE_INLINE bool SkipAcs(const AcTable& table, Bits* b) {
  uint64_t index = 1, next = 1;
  for (;;) {
    unsigned skip;
    Refill(b);
#pragma GCC unroll 3
    for (int i = 0; i < kGroup; ++i) {
      skip = table.skips[b->bits >> (64 - kAcLookBits)];
      next = index + (skip >> 8);
      if (next >= 64) break;
      Drop(b, skip);
      index = next;
    }
    if (next < 64) continue;
    if (IsEnd(next)) {
      Drop(b, skip);
      return true;
    }
    index = TakeLongAc<false>(table, index, b, nullptr);
    if (index >= 64) return index < kBadIndex;
  }
}

// Adds the DC difference to `last` (T.81, F.2.1.3.1). Returns whether the code exists,
// and the value is in range.
TFPIPE_INLINE bool TakeLastDc(const DcTable& table, int* last, Bits* b) {
  int difference;
  Refill(b);
  if (!TakeDc(table, b, &difference)) return false;
  *last += difference;
  return *last == static_cast<JCOEF>(*last);
}

// Reads a block into `block` if kWanted, otherwise skips the block. Returns whether the
// block was sound.
template <bool kWanted>
TFPIPE_INLINE bool TakeBlock(const DcTable& dc, const AcTable& ac, int* last, Bits* b,
                             JCOEF* block) {
  if (!TakeLastDc(dc, last, b)) return false;
  if (!kWanted) return SkipAcs(ac, b);
  block[0] = static_cast<JCOEF>(*last);
  return TakeAcs(ac, b, block);
}

}  // namespace tfpipe

#endif
