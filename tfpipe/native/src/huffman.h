// Baseline Huffman decoding, which is most of the cost of a JPEG: faster than libjpeg's.
//
// One look-up gives a short code, its run of zeros and its coefficient at once. 8 bytes
// are read at a time. Blocks outside the crop box are only skipped over; if a restart
// marker or an entry point (entry_points.h) comes before the next wanted block, the blocks
// before it are not decoded at all. This decoder replaces libjpeg's decode_mcu; libjpeg has
// checked the tables before.
//
// This decoder handles sound data only. On anything odd (a code that does not exist, a
// marker too early, an end) it gives up. libjpeg then decodes the image from its start
// and alone decides what the data mean.
#ifndef TFPIPE_NATIVE_HUFFMAN_H_
#define TFPIPE_NATIVE_HUFFMAN_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "external/libjpeg_turbo/jpeglib.h"

#include "entry_points.h"

// The start of libjpeg's private decoder object: its first two members, which have not
// changed since 1991.
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr info);
  boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW* blocks);
};

namespace tfpipe {

constexpr int kLookup = 11;    // bits: 8 KB a table, so that all stay in the L1 cache
constexpr int kEnd = 127;     // "run" of the symbol that ends a block
constexpr int kBad = 1 << 10;  // "run" of a code that does not exist
constexpr int kWhole = 64;    // flag of an entry: it holds the value too

// Place of each coefficient in a block. A damaged run may point up to 15 past the last.
constexpr uint8_t kZigzag[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

// A Huffman table. An entry of `lookup` holds, from its lowest bits: the number of bits
// to consume (6 bits), kWhole or not (1 bit), the number of zeros before the coefficient
// plus one (from bit 8), and either the coefficient or, if it does not fit, its number of
// bits (from bit 16). The entry is 0 for codes that are longer or do not exist.
struct Table {
  bool known = false, dc;
  JHUFF_TBL source;
  int32_t lookup[1 << kLookup];
  int32_t last_code[17];  // of each length, or -1
  int32_t first_value[17];
};

inline int32_t Extend(uint32_t bits, int size) {
  return bits < (1u << (size - 1)) ? static_cast<int32_t>(bits) - (1 << size) + 1
                                   : static_cast<int32_t>(bits);
}

inline int32_t Entry(int symbol, bool dc, int length) {
  const int size = dc ? symbol : symbol & 15;
  int run = dc ? 1 : (symbol >> 4) + 1;
  if (!dc && size == 0 && run != 16) run = kEnd;
  return (size << 16) | (run << 8) | (size == 0 ? kWhole : 0) | length;
}

inline void FillTable(const JHUFF_TBL& source, bool dc, Table* table) {
  if (table->known && table->dc == dc &&
      memcmp(table->source.bits, source.bits, sizeof(source.bits)) == 0 &&
      memcmp(table->source.huffval, source.huffval, sizeof(source.huffval)) == 0) {
    return;
  }
  table->known = true;
  table->dc = dc;
  table->source = source;
  memset(table->lookup, 0, sizeof(table->lookup));
  int code = 0, value = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    table->first_value[length] = value - code;
    for (int i = 0; i < source.bits[length]; ++i, ++code, ++value) {
      if (length > kLookup) continue;
      const int32_t entry = Entry(source.huffval[value], dc, length);
      const int size = entry >> 16, rest = kLookup - length;
      for (int j = 0; j < 1 << rest; ++j) {
        int32_t* to = &table->lookup[(code << rest) + j];
        *to = entry;
        if (size == 0 || size > rest) continue;
        const int32_t coefficient = Extend(j >> (rest - size), size);
        *to = coefficient * (1 << 16) + ((entry & 0xffff) | kWhole) + size;
      }
    }
    table->last_code[length] = source.bits[length] ? code - 1 : -1;
  }
}

// The next bits, from the highest, of which `count` are valid, and the address of the
// next byte. It is passed by value, so that all of it stays in registers.
struct Bits {
  uint64_t bits;
  int64_t count;
  const uint8_t* next;
};

struct Huffman {
  Table dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
  Bits bits;
  const uint8_t* end;
  int missing;  // zero bits added after the end of the data
  // Where in the image.
  int column, num_columns, first_column, last_column;
  // Restart intervals: MCUs of each, or 0; those to come of this one; those to come that
  // were asked for and not looked at yet, as nobody wants them; the marker that follows.
  unsigned restart_interval, before_restart, num_passed, restart;
  // Entry points, or null; the MCU before which `bits` stands; the first byte of the scan.
  const EntryPoints* points;
  uint32_t mcu;
  const uint8_t* begin;
  int last_dc[MAX_COMPS_IN_SCAN];
};

#define TFPIPE_INLINE inline __attribute__((always_inline))
#define TFPIPE_RARE(condition) __builtin_expect(!!(condition), 0)

// Reads byte by byte, near a 0xff or the end.
static __attribute__((noinline)) Bits RefillSlowly(Huffman* h, Bits b) {
  for (; b.count < 56; b.count += 8) {
    uint64_t byte = 0;
    if (b.next < h->end && *b.next != 0xff) {
      byte = *b.next++;
    } else if (h->end - b.next >= 2 && b.next[1] == 0) {
      byte = 0xff;
      b.next += 2;
    } else {
      h->missing += 8;
    }
    b.bits |= byte << (56 - b.count);
  }
  return b;
}

// Makes `count` at least 56. A byte of which a part was read before is read again.
TFPIPE_INLINE void Refill(Huffman* h, Bits* b) {
  uint64_t bytes = ~uint64_t{0};
  if (h->end - b->next >= 8) memcpy(&bytes, b->next, 8);
  if (TFPIPE_RARE((~bytes - 0x0101010101010101u) & bytes & 0x8080808080808080u)) {
    *b = RefillSlowly(h, *b);
    return;
  }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  bytes = __builtin_bswap64(bytes);
#endif
  b->bits |= bytes >> b->count;
  b->next += (63 - b->count) >> 3;
  b->count |= 56;
}

TFPIPE_INLINE void Drop(Bits* b, int count) {
  b->bits <<= count & 63;
  b->count -= count;
}

// Returns the entry of a code that is too long for the look-up, or 0.
static __attribute__((noinline)) int32_t FindLong(uint64_t bits, const Table& table) {
  for (int length = kLookup + 1; length <= 16; ++length) {
    const int32_t code = static_cast<int32_t>(bits >> (64 - length));
    if (code <= table.last_code[length]) {
      return Entry(table.source.huffval[(table.first_value[length] + code) & 255],
                   table.dc, length);
    }
  }
  return 0;
}

// A coefficient and the number of places to advance, or the end of a block.
struct Symbol {
  int run, value;
};

static __attribute__((noinline)) Symbol TakeLong(Huffman* h, const Table& table,
                                                 int32_t entry, Bits* bits) {
  Bits b = *bits;
  Refill(h, &b);
  if (entry == 0) entry = FindLong(b.bits, table);
  const int size = entry >> 16;
  Drop(&b, entry & 63);
  Symbol symbol = {entry == 0 ? kBad : (entry >> 8) & 127, 0};
  if (size > 0) {
    symbol.value = Extend(static_cast<uint32_t>(b.bits >> (64 - size)), size);
    Drop(&b, size);
  }
  Refill(h, &b);
  *bits = b;
  return symbol;
}

// Reads a symbol. At least kLookup bits must be valid; a long code refills to 56.
TFPIPE_INLINE Symbol Take(Huffman* h, const Table& table, const int32_t* lookup,
                          Bits* b) {
  const int32_t entry = lookup[b->bits >> (64 - kLookup)];
  if (TFPIPE_RARE(!(entry & kWhole))) {
    Bits copy = *b;
    const Symbol symbol = TakeLong(h, table, entry, &copy);
    *b = copy;
    return symbol;
  }
  Drop(b, entry & 63);
  return {(entry >> 8) & 127, entry >> 16};
}

// Reads the coefficient after the first k of a block. Returns whether the block ends.
template <bool kWanted>
TFPIPE_INLINE bool TakeOne(Huffman* h, const Table& ac, const int32_t* lookup, Bits* b,
                           JCOEF* block, int* k) {
  const Symbol symbol = Take(h, ac, lookup, b);
  *k += symbol.run;
  if (*k > 64 + 15) return true;
  if (kWanted) block[kZigzag[*k - 1]] = static_cast<JCOEF>(symbol.value);
  return *k >= 64;
}

// Reads one block, into `block` if it is wanted. Returns whether it was sound.
template <bool kWanted>
TFPIPE_INLINE bool TakeBlock(Huffman* h, const Table& dc, const Table& ac, int* last_dc,
                             Bits* b, JCOEF* block) {
  Refill(h, b);
  const Symbol first = Take(h, dc, dc.lookup, b);
  *last_dc += first.value;
  if (first.run == kBad || *last_dc != static_cast<JCOEF>(*last_dc)) return false;
  if (kWanted) block[0] = static_cast<JCOEF>(*last_dc);
  const int32_t* lookup = ac.lookup;
  int k = 1;
  // Five look-ups of eleven bits for each refill of 56.
  do {
    Refill(h, b);
  } while (!TakeOne<kWanted>(h, ac, lookup, b, block, &k) &&
           !TakeOne<kWanted>(h, ac, lookup, b, block, &k) &&
           !TakeOne<kWanted>(h, ac, lookup, b, block, &k) &&
           !TakeOne<kWanted>(h, ac, lookup, b, block, &k) &&
           !TakeOne<kWanted>(h, ac, lookup, b, block, &k));
  return k < kBad;
}

// Skips the marker between two restart intervals. Returns whether it is the right one.
inline bool Restart(Huffman* h) {
  Bits* b = &h->bits;
  if (b->count - h->missing >= 8 || h->end - b->next < 2 || b->next[0] != 0xff ||
      b->next[1] != 0xd0 + h->restart) {
    return false;
  }
  *b = {0, 0, b->next + 2};
  h->missing = 0;
  h->restart = (h->restart + 1) & 7;
  h->before_restart = h->restart_interval;
  memset(h->last_dc, 0, sizeof(h->last_dc));
  return true;
}

// Returns the next marker, or null. Within codes, a zero follows each 0xff.
inline const uint8_t* FindMarker(const uint8_t* next, const uint8_t* end) {
  while (next < end) {
    next = static_cast<const uint8_t*>(memchr(next, 0xff, end - next));
    if (next == nullptr || end - next < 2) return nullptr;
    if (next[1] != 0 && next[1] != 0xff) return next;
    ++next;
  }
  return nullptr;
}

// Returns whether a marker follows. If the data just end, libjpeg may complain or not,
// depending on how far it reads ahead.
inline bool EndsInMarker(const Huffman& h) {
  return FindMarker(h.bits.next, h.end) != nullptr;
}

// Skips the rest of a restart interval and the marker that ends it. libjpeg never reads
// past a marker, and it would accept any codes before the marker, except a DC value that
// leaves 32 bits, which only an interval made on purpose has.
inline bool PassInterval(Huffman* h) {
  if (h->before_restart > 0) {
    const uint8_t* marker = FindMarker(h->bits.next, h->end);
    if (marker == nullptr) return false;
    h->bits = {0, 0, marker};
    h->missing = 0;
    h->num_passed -= h->before_restart;
  }
  return Restart(h);
}

// Reads or skips the blocks of an MCU. Returns whether they were sound.
inline bool TakeBlocks(Huffman* h, const jpeg_decompress_struct& info,
                       JBLOCKROW* blocks) {
  Bits bits = h->bits;
  for (int i = 0; i < info.blocks_in_MCU; ++i) {
    const int index = info.MCU_membership[i];
    const jpeg_component_info& component = *info.cur_comp_info[index];
    const Table &dc = h->dc[component.dc_tbl_no], &ac = h->ac[component.ac_tbl_no];
    int* last_dc = &h->last_dc[index];
    if (!(blocks ? TakeBlock<true>(h, dc, ac, last_dc, &bits, *blocks[i])
                 : TakeBlock<false>(h, dc, ac, last_dc, &bits, nullptr))) {
      return false;
    }
  }
  h->bits = bits;
  if (h->end - bits.next < 32 && !EndsInMarker(*h)) return false;
  return bits.count >= h->missing;
}

// Moves to the last entry point before the next wanted MCU, if it is ahead. Returns whether
// it lies within the scan.
inline bool Jump(Huffman* h) {
  const uint32_t step = h->points->step, number = (h->mcu + h->num_passed) / step;
  if (number == 0 || number > h->points->num_points) return true;
  const uint32_t mcu = number * step;
  if (mcu <= h->mcu) return true;
  const EntryPoint point = PointAt(*h->points, number - 1);
  if (point.place >> 3 >= static_cast<uint64_t>(h->end - h->begin)) return false;
  h->bits = {0, 0, h->begin + (point.place >> 3)};
  h->missing = 0;
  Refill(h, &h->bits);
  Drop(&h->bits, point.place & 7);
  static_assert(sizeof(h->last_dc) == sizeof(point.dc), "one value for each component");
  memcpy(h->last_dc, point.dc, sizeof(h->last_dc));
  h->num_passed -= mcu - h->mcu;
  h->mcu = mcu;
  return true;
}

// Moves past the MCUs whose skipping was put off.
inline bool CatchUp(Huffman* h, const jpeg_decompress_struct& info) {
  if (h->points != nullptr) {
    if (!Jump(h)) return false;
  } else {
    while (h->num_passed >= h->before_restart) {
      if (!PassInterval(h)) return false;
    }
  }
  for (; h->num_passed > 0; --h->num_passed, --h->before_restart, ++h->mcu) {
    if (!TakeBlocks(h, info, nullptr)) return false;
  }
  return true;
}

// Reads the blocks of an MCU, as libjpeg's decode_mcu. Returns whether they were sound.
inline bool TakeMcu(Huffman* h, const jpeg_decompress_struct& info,
                    JBLOCKROW* blocks) {
  const bool wanted = blocks != nullptr && h->column >= h->first_column &&
                      h->column <= h->last_column;
  if (++h->column == h->num_columns) h->column = 0;
  if (h->restart_interval > 0 || h->points != nullptr) {
    if (!wanted) {
      ++h->num_passed;
      return true;
    }
    if (h->num_passed > 0 || h->restart_interval > 0) {
      if (!CatchUp(h, info)) return false;
    }
    --h->before_restart;
    ++h->mcu;
  }
  return TakeBlocks(h, info, wanted ? blocks : nullptr);
}

// Returns, after the last MCU, whether libjpeg would have come this far. libjpeg reads the
// skipped MCUs too, and only the end of the data stops it.
//
// A JPEG with entry points is known to be sound up to EOI.
inline bool End(Huffman* h) {
  if (h->points != nullptr) return true;
  while (h->num_passed > h->before_restart) {
    if (!PassInterval(h)) return false;
  }
  return h->num_passed == 0 || EndsInMarker(*h);
}

// Returns whether this decoder can decode an image.
inline bool IsPlain(const jpeg_decompress_struct& info) {
  return !info.progressive_mode && !info.arith_code &&
         info.comps_in_scan == info.num_components;
}

// Starts at the first MCU; only the given columns of each row are wanted.
// The entry points may be null, and are not used if they do not fit the image.
inline void Begin(const jpeg_decompress_struct& info, int first_column, int last_column,
                  const EntryPoints* points, Huffman* h) {
  for (int i = 0; i < info.comps_in_scan; ++i) {
    const jpeg_component_info& component = *info.cur_comp_info[i];
    FillTable(*info.dc_huff_tbl_ptrs[component.dc_tbl_no], true,
              &h->dc[component.dc_tbl_no]);
    FillTable(*info.ac_huff_tbl_ptrs[component.ac_tbl_no], false,
              &h->ac[component.ac_tbl_no]);
  }
  const uint8_t* data = info.src->next_input_byte;
  h->bits = {0, 0, data};
  h->end = data + info.src->bytes_in_buffer;
  h->missing = 0;
  h->column = 0;
  h->num_columns = info.MCUs_per_row;
  h->first_column = first_column;
  h->last_column = last_column;
  h->restart_interval = h->before_restart = info.restart_interval;
  h->num_passed = h->restart = 0;
  h->begin = data;
  h->mcu = 0;
  const bool fit = points != nullptr && info.restart_interval == 0 &&
                   points->num_parts == info.comps_in_scan &&
                   points->num_mcus == uint64_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
  h->points = fit ? points : nullptr;
  memset(h->last_dc, 0, sizeof(h->last_dc));
}

}  // namespace tfpipe

#endif
