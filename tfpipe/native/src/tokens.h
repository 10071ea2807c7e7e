// The Huffman codes of a sequential scan as tokens, written again with other tables.
//
// A token stands for one or two codes with their values. Values are not computed: their
// bits are copied. The reader counts the tokens of each kind, so that codes can be
// chosen for them. A kind names its table, so that the writer needs no blocks.
#ifndef TFPIPE_NATIVE_TOKENS_H_
#define TFPIPE_NATIVE_TOKENS_H_

#include <stdint.h>
#include <string.h>

#include "platform.h"
#include "scan.h"

namespace tfpipe {

constexpr int kTokenLookBits = 10;  // the next bits, called lookahead
constexpr int kNumTokenLooks = 1 << kTokenLookBits;
// The kinds of tokens of a table: a lookahead, or a single symbol.
constexpr int kKinds = kNumTokenLooks + kMaxSymbols;
constexpr int kAllKinds = 2 * kMaxTables * kKinds;
constexpr size_t kMaxMcuTokens = kMaxMcuBlocks * kBlockSize;
constexpr int kTokenEndAdvance = 128;  // advance of the symbol at the end of a block
constexpr int kNoTokenAdvance = 255;   // advance of a lookahead without a whole code

// The one or two codes at the start of a lookahead.
//
//   taken    bits of the lookahead that belong to the codes and values
//   extra    bits after them, if the last value does not fit
//   advance  indices in the block, see codes.h
//   count    number of codes
struct Look {
  uint8_t taken, extra, advance, count;
  uint8_t numbers[2];  // of the symbols in their table
};

// A table to read codes with.
struct Reading {
  uint32_t first_kind;  // of its tokens
  Look looks[kNumTokenLooks];
  uint8_t advances[kMaxSymbols], sizes[kMaxSymbols];
  int32_t last_code[kMaxLength + 1];  // of each length, or -1
  int32_t first_number[kMaxLength + 1];
};

// The tokens of a scan:
//
//   bits   content of a token
//   0-15   extra bits
//   16-31  kind
struct Tokens {
  GrowingBuffer<uint32_t> values;
  std::vector<size_t> ends;    // of each restart interval
  uint32_t counts[kAllKinds];  // of each kind
};

inline int SizeOf(int symbol, bool dc) { return dc ? symbol : symbol & 15; }

// See codes.h: decoders take any AC symbol without a value for the end of a block,
// except ZRL.
inline int AdvanceOf(int symbol, bool dc) {
  if (dc) return 1;
  if ((symbol & 15) == 0 && symbol != 0xf0) return kTokenEndAdvance;
  return (symbol >> 4) + 1;
}

// Adds the next code of a lookahead to its look. Returns whether another code may
// follow.
inline bool AddToLook(const Reading& reading, int lookahead, Look* look) {
  int length = 1, code = 0;
  for (;; ++length) {
    const int left = kTokenLookBits - look->taken - length;
    if (left < 0) return false;
    code = lookahead >> left & ((1 << length) - 1);
    if (code <= reading.last_code[length]) break;
  }
  const int number = reading.first_number[length] + code;
  const int advance = reading.advances[number], size = reading.sizes[number];
  const bool ends = advance == kTokenEndAdvance;
  // A sum within a block must differ from the end of a block.
  if (look->advance + (ends ? 0 : advance) > kBlockSize) return false;
  look->taken = static_cast<uint8_t>(look->taken + length);
  look->advance = static_cast<uint8_t>(look->advance + advance);
  look->numbers[look->count++] = static_cast<uint8_t>(number);
  if (size > kTokenLookBits - look->taken) {
    look->extra = static_cast<uint8_t>(size);
    return false;
  }
  look->taken = static_cast<uint8_t>(look->taken + size);
  return !ends && look->count < 2;
}

// Fills a table. Tables are counted from the first DC table, 0, and the first AC table,
// kMaxTables.
inline void FillReading(const Codes& codes, bool dc, int table, Reading* reading) {
  reading->first_kind = static_cast<uint32_t>(table * kKinds);
  std::fill(reading->last_code, reading->last_code + kMaxLength + 1, -1);
  int code = 0, length = 0;
  for (int i = 0; i < codes.num_symbols; ++i, ++code) {
    if (codes.lengths[i] > length) {
      code <<= codes.lengths[i] - length;
      length = codes.lengths[i];
      reading->first_number[length] = i - code;
    }
    reading->last_code[length] = code;
    reading->advances[i] = static_cast<uint8_t>(AdvanceOf(codes.symbols[i], dc));
    reading->sizes[i] = static_cast<uint8_t>(SizeOf(codes.symbols[i], dc));
  }
  for (int lookahead = 0; lookahead < kNumTokenLooks; ++lookahead) {
    Look look = {0, 0, 0, 0, {0, 0}};
    if (AddToLook(*reading, lookahead, &look) && !dc) {
      AddToLook(*reading, lookahead, &look);
    }
    if (look.count == 0) look.advance = kNoTokenAdvance;
    reading->looks[lookahead] = look;
  }
}

// The next bits, from the highest on, of which `count` are valid.
struct BitReader {
  const uint8_t* next;
  uint64_t bits = 0;
  int64_t count = 0;

  TFPIPE_INLINE void Refill() {
    uint64_t bytes;
    memcpy(&bytes, next, 8);
    bits |= ToBigEndian(bytes) >> count;
    next += (63 - count) >> 3;
    count |= 56;
  }
  TFPIPE_INLINE void Drop(int number) {
    bits <<= number;
    count -= number;
  }
  // Returns `number` bits, at most 15, after the first `skipped`.
  TFPIPE_INLINE uint32_t Peek(int skipped, int number) const {
    return static_cast<uint32_t>(bits << skipped >> 1 >> (63 - number));
  }
};

// Takes one code, which may be long. Returns its advance, or kNoTokenAdvance if there
// is none.
inline int TakeSymbol(const Reading& reading, BitReader* reader, uint32_t** token,
                      uint32_t* counts) {
  for (int length = 1; length <= kMaxLength; ++length) {
    const auto code = static_cast<int32_t>(reader->bits >> (64 - length));
    if (code > reading.last_code[length]) continue;
    const int number = reading.first_number[length] + code;
    const uint32_t kind =
        reading.first_kind + static_cast<uint32_t>(kNumTokenLooks + number);
    const int size = reading.sizes[number];
    ++counts[kind];
    *(*token)++ = kind << 16 | reader->Peek(length, size);
    reader->Drop(length + size);
    return reading.advances[number];
  }
  return kNoTokenAdvance;
}

// Reads the codes of a block (T.81, F.2.2). Returns whether they are sound.
TFPIPE_INLINE bool ReadBlock(const Reading& dc, const Reading& ac, BitReader* reader,
                             uint32_t** token, uint32_t* counts) {
  int index = 0;
  for (const Reading* reading = &dc; index < kBlockSize; reading = &ac) {
    reader->Refill();
    const uint64_t lookahead = reader->bits >> (64 - kTokenLookBits);
    const Look look = reading->looks[lookahead];
    const int next = index + look.advance;
    if (next >= kBlockSize &&
        !(next > kTokenEndAdvance && next < kTokenEndAdvance + kBlockSize)) {
      // The second code belongs to the next block, or the first code is long.
      BitReader copy = *reader;
      uint32_t* to = *token;
      index += TakeSymbol(*reading, &copy, &to, counts);
      *reader = copy;
      *token = to;
      continue;
    }
    const uint32_t kind = reading->first_kind + static_cast<uint32_t>(lookahead);
    ++counts[kind];
    *(*token)++ = kind << 16 | reader->Peek(look.taken, look.extra);
    reader->Drop(look.taken + look.extra);
    index = next;
  }
  return index == kBlockSize ||
         (index > kTokenEndAdvance && index < kTokenEndAdvance + kBlockSize);
}

using Readings = Reading[2][kMaxTables];

// Reads the codes of `num_mcus` MCUs between two bytes. Returns whether they are sound.
TFPIPE_INLINE bool ReadMcus(const uint8_t* begin, const uint8_t* end,
                            const Layout& layout, const Readings& readings,
                            int64_t num_mcus, Tokens* tokens, size_t* size) {
  BitReader reader = {begin};
  for (; num_mcus > 0; --num_mcus) {
    if (tokens->values.size() - *size < kMaxMcuTokens) {
      tokens->values.Grow(2 * tokens->values.size() + kMaxMcuTokens);
    }
    uint32_t* const first = tokens->values.data();
    uint32_t* token = first + *size;
    for (int i = 0; i < layout.num_blocks; ++i) {
      // The reader is up to 8 bytes ahead.
      if (reader.next > end + 8) return false;
      if (!ReadBlock(readings[0][layout.dc[i]], readings[1][layout.ac[i]], &reader,
                     &token, tokens->counts)) {
        return false;
      }
    }
    *size = static_cast<size_t>(token - first);
  }
  const int64_t unread = (end - reader.next) * 8 + reader.count;
  return 0 <= unread && unread < 8;
}

// Reads all codes. Returns whether they are sound, and as many as the image needs.
TFPIPE_INLINE bool ReadIntervals(const Scan& scan, const Header& header,
                                 const Layout& layout, const Readings& readings,
                                 Tokens* tokens) {
  size_t begin = 0, size = 0;
  int64_t rest = layout.num_mcus;
  for (const size_t end : scan.ends) {
    const int64_t num_mcus = header.interval ? std::min(header.interval, rest) : rest;
    const uint8_t* bytes = scan.bytes.data();
    if (num_mcus == 0 || !ReadMcus(bytes + begin, bytes + end, layout, readings,
                                   num_mcus, tokens, &size)) {
      return false;
    }
    rest -= num_mcus;
    begin = end;
    tokens->ends.push_back(size);
  }
  return rest == 0;
}

// New codes for the symbols of a table, by the number of the symbol in the table.
struct NewCodes {
  uint8_t lengths[kMaxSymbols];
  uint16_t codes[kMaxSymbols];
  uint8_t order[kMaxSymbols];  // numbers of the symbols in the order of the codes
};

// How to write a token of each kind:
//
//   bits   content
//   0-7    number of extra bits
//   8-15   number of all bits
//   16-63  the bits before the extra bits
using Writing = uint64_t[kAllKinds];

// Fills how to write the tokens of a table, as far as they occur.
inline void FillWriting(const Reading& reading, const NewCodes& fresh,
                        const uint32_t* counts, uint64_t* writing) {
  const auto write = [](uint64_t bits, int number, int extra) {
    return bits << 16 | static_cast<uint64_t>((number + extra) << 8 | extra);
  };
  for (int lookahead = 0; lookahead < kNumTokenLooks; ++lookahead) {
    const Look& look = reading.looks[lookahead];
    if (counts[lookahead] == 0) continue;
    uint64_t bits = 0;
    int number = 0, read = 0;
    for (int i = 0; i < look.count; ++i) {
      const int symbol = look.numbers[i];
      const int size = i + 1 == look.count && look.extra ? 0 : reading.sizes[symbol];
      int length = 1;
      while ((lookahead >> (kTokenLookBits - read - length) & ((1 << length) - 1)) >
             reading.last_code[length]) {
        ++length;
      }
      read += length + size;
      const int value = lookahead >> (kTokenLookBits - read) & ((1 << size) - 1);
      bits = (bits << fresh.lengths[symbol] | fresh.codes[symbol]) << size |
             static_cast<uint64_t>(value);
      number += fresh.lengths[symbol] + size;
    }
    writing[lookahead] = write(bits, number, look.extra);
  }
  for (int symbol = 0; symbol < kMaxSymbols; ++symbol) {
    if (counts[kNumTokenLooks + symbol] == 0) continue;
    writing[kNumTokenLooks + symbol] =
        write(fresh.codes[symbol], fresh.lengths[symbol], reading.sizes[symbol]);
  }
}

// Writes all tokens without stuffed zeros; ones fill the last byte of an interval
// (T.81, F.1.2.3).
TFPIPE_INLINE void WriteIntervals(const Tokens& tokens, const Writing& writing,
                                  Scan* scan) {
  const uint32_t* token = tokens.values.data();
  uint8_t* next = scan->bytes.data();
  for (const size_t end : tokens.ends) {
    uint64_t bits = 0;
    int count = 0;  // below 8
    const uint32_t* last = tokens.values.data() + end;
    for (; token < last; ++token) {
      const uint64_t how = writing[*token >> 16];
      const int number = how >> 8 & 255;  // at most 2 * 16 + 8 + 15
      const uint64_t value = how >> 16 << (how & 255) | (*token & 0xffff);
      bits |= value << (64 - count - number);
      count += number;
      const uint64_t bytes = ToBigEndian(bits);
      memcpy(next, &bytes, 8);
      next += count >> 3;
      bits <<= count & ~7;
      count &= 7;
    }
    if (count > 0) *next++ = static_cast<uint8_t>(bits >> 56 | 0xff >> count);
    scan->ends.push_back(static_cast<size_t>(next - scan->bytes.data()));
  }
}

}  // namespace tfpipe

#endif
