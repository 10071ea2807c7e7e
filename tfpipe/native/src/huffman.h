// Huffman decoding of the MCUs that a crop box needs, in baseline JPEGs (ITU T.81,
// F.2): faster than libjpeg's decoder, because MCUs outside the crop box are skipped.
//
// The MCUs between two wanted MCUs are skipped in one of three ways:
//
//   the JPEG has      skipping
//   entry points      continues at the last entry point before the MCU (entry_points.h)
//   restart markers   continues after the last marker before the MCU (T.81, B.2.4.4)
//   neither           reads the codes without values (skip.h, codes.h)
//
// In the first two cases, the last MCUs before the wanted MCU are skipped as in the
// third.
//
// This decoder stands in place of libjpeg's decode_mcu, after libjpeg has checked the
// tables. The decoder is for sound data only. On a code that does not exist, an early
// marker or an end, it gives up; libjpeg then decodes the image from the start, and
// alone decides about the data.
#ifndef TFPIPE_NATIVE_HUFFMAN_H_
#define TFPIPE_NATIVE_HUFFMAN_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "external/libjpeg_turbo/jpeglib.h"

#include "codes.h"
#include "entry_points.h"
#include "skip.h"

// The first two members of libjpeg's private decoder, unchanged since 1991.
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr info);
  boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW* blocks);
};

namespace tfpipe {

// Entry points to make: before every `step`-th MCU that is skipped.
struct Notes {
  uint32_t step, left;  // MCUs between two entry points; MCUs to the next entry point
  std::vector<EntryPoint> points;
};

struct Huffman {
  DcTable dc[NUM_HUFF_TBLS];
  AcTable ac[NUM_HUFF_TBLS];
  StartTable starts[MAX_COMPS_IN_SCAN];
  SkippedMcu skipped;
  Chunk chunk;
  unsigned begins[2 * (kMaxChunkBlocks + kGroup)];  // see SkipBlocks
  unsigned second_begins[kMaxChunkBlocks + kGroup];
  uint64_t mcu_bytes;  // bytes of an MCU in the scan, times 256
  Notes* notes;        // or null
  Bits bits;           // in the chunk
  int column, num_columns, first_column, last_column;  // of MCUs
  unsigned num_passed;  // MCUs that libjpeg asked for and nobody wants, not yet skipped
  // Restart intervals: the MCUs of an interval, or 0; the MCUs left of the present
  // interval; the number of the marker after the interval, 0 to 7.
  unsigned restart_interval, before_restart, restart;
  const EntryPoints* points;   // or null
  uint32_t mcu;                // index of the MCU at `bits`
  const uint8_t *begin, *end;  // of the scan
  int last_dc[MAX_COMPS_IN_SCAN];
};

// Returns the next marker, or null. A zero after a 0xff belongs to the codes, and more
// 0xff may stand before a marker (T.81, B.1.1.2 and B.1.1.5).
inline const uint8_t* FindMarker(const uint8_t* next, const uint8_t* end) {
  while (next < end) {
    next = static_cast<const uint8_t*>(memchr(next, 0xff, end - next));
    if (next == nullptr || end - next < 2) return nullptr;
    if (next[1] != 0 && next[1] != 0xff) return next;
    ++next;
  }
  return nullptr;
}

// Returns the address of the byte in the scan with the next bit.
inline const uint8_t* NextByte(const Huffman& h) {
  return AddressOf(h.chunk, BitIn(h.chunk, h.bits) >> 3);
}

// Returns the offset of the next bit from the first bit of the scan.
inline uint64_t BitOffset(const Huffman& h) {
  return static_cast<uint64_t>(NextByte(h) - h.begin) * 8 +
         (BitIn(h.chunk, h.bits) & 7);
}

// Continues at a bit of a byte.
inline void MoveTo(Huffman* h, const uint8_t* next, unsigned bit) {
  Chunk* chunk = &h->chunk;
  if (next < chunk->begin || chunk->end - next < kMinChunkBytes)
    FillChunk(next, h->end, chunk);
  h->bits = BitsFrom(*chunk, ByteAt(*chunk, next) * 8 + bit);
}

// Returns whether a marker follows the chunk. Without a marker libjpeg may complain or
// not: libjpeg reads ahead.
inline bool EndsInMarker(const Huffman& h) {
  return FindMarker(h.chunk.end, h.end) != nullptr;
}

inline bool HasBlock(const Chunk& chunk, const Bits& b) {
  return chunk.bytes + chunk.size - b.next >= kBlockBytes;
}

// Fills the chunk from the next bit on. Returns whether all bits taken lie before the
// end of the data.
static TFPIPE_NOINLINE bool FillFrom(Huffman* h, Bits* b) {
  Chunk* chunk = &h->chunk;
  const unsigned at = BitIn(*chunk, *b);
  if (at > static_cast<unsigned>(chunk->size) * 8) return false;
  if (!chunk->is_last) {
    FillChunk(AddressOf(*chunk, at >> 3), h->end, chunk);
    *b = BitsFrom(*chunk, at & 7);
  }
  return HasBlock(*chunk, *b) || EndsInMarker(*h);
}

// Makes a block ready to be read. Returns whether all bits taken lie before the end of
// the data.
TFPIPE_INLINE bool Reserve(Huffman* h, Bits* b) {
  if (!TFPIPE_RARE(!HasBlock(h->chunk, *b))) return true;
  Bits copy = *b;
  const bool before_end = FillFrom(h, &copy);
  *b = copy;
  return before_end;
}

// Skips a marker between two restart intervals, and resets the decoder (T.81, E.2.4).
// Returns whether the marker is the expected one.
inline bool Restart(Huffman* h, const uint8_t* marker) {
  if (h->end - marker < 2 || marker[0] != 0xff || marker[1] != 0xd0 + h->restart)
    return false;
  MoveTo(h, marker + 2, 0);
  h->restart = (h->restart + 1) & 7;
  h->before_restart = h->restart_interval;
  memset(h->last_dc, 0, sizeof(h->last_dc));
  return true;
}

// Skips the rest of a restart interval and its marker, without reading the codes.
// libjpeg would read the codes and accept any of them up to the marker, except for a DC
// value beyond 32 bits, which only a forged interval has.
inline bool PassInterval(Huffman* h) {
  if (h->before_restart > 0) {
    const uint8_t* marker = FindMarker(NextByte(*h), h->end);
    if (marker == nullptr) return false;
    h->num_passed -= h->before_restart;
    return Restart(h, marker);
  }
  const unsigned at = BitIn(h->chunk, h->bits);
  if (!h->chunk.is_last || static_cast<unsigned>(h->chunk.size) * 8 - at >= 8)
    return false;
  return Restart(h, h->chunk.end);
}

// Reads the blocks of an MCU (T.81, E.2.5), or skips the blocks if `blocks` is null.
// Returns whether the blocks were sound.
inline bool TakeBlocks(Huffman* h, const jpeg_decompress_struct& info,
                       JBLOCKROW* blocks) {
  Bits bits = h->bits;
  for (int i = 0; i < info.blocks_in_MCU; ++i) {
    const int index = info.MCU_membership[i];
    const DcTable& dc = *h->skipped.components[index].dc;
    const AcTable& ac = *h->skipped.components[index].ac;
    int* last_dc = &h->last_dc[index];
    if (!Reserve(h, &bits)) return false;
    if (!(blocks ? TakeBlock<true>(dc, ac, last_dc, &bits, *blocks[i])
                 : TakeBlock<false>(dc, ac, last_dc, &bits, nullptr))) {
      return false;
    }
  }
  const bool before_end = Reserve(h, &bits);
  h->bits = bits;
  return before_end;
}

// Counts MCUs that were skipped, and makes an entry point if the next entry point is
// due.
inline void Note(Huffman* h, int num_mcus) {
  Notes* notes = h->notes;
  if (notes == nullptr) return;
  notes->left -= static_cast<unsigned>(num_mcus);
  if (notes->left > 0) return;
  EntryPoint point = {BitOffset(*h), {}};
  memcpy(point.dc, h->last_dc, sizeof(point.dc));
  notes->points.push_back(point);
  notes->left = notes->step;
}

// Returns the bits, about, of `count` MCUs from bit `begin` of the chunk on.
inline Stretch StretchOf(const Huffman& h, unsigned begin, unsigned count) {
  const uint64_t bytes =
      std::min<uint64_t>(count * h.mcu_bytes / 256 + kMinChunkBytes, kChunkBytes);
  const auto rest = static_cast<unsigned>(h.chunk.size) * 8 - begin;
  const unsigned bits = std::min(rest, static_cast<unsigned>(bytes) * 8);
  return {begin, begin + (bits < kMinTwoSkippersBits ? 0 : bits / 2), begin + bits};
}

// Moves past `count` MCUs of `begins`, and makes entry points on the way. Returns
// whether the DC values are in range.
inline bool MovePast(Huffman* h, int count) {
  const unsigned* begin = h->begins;
  const int num_blocks = h->skipped.num_blocks;
  while (count > 0) {
    const auto part = h->notes != nullptr
                          ? static_cast<int>(std::min<int64_t>(h->notes->left, count))
                          : count;
    if (!AddDifferences(h->chunk, h->skipped, begin, part, h->last_dc)) return false;
    begin += part * num_blocks;
    count -= part;
    h->bits = BitsFrom(h->chunk, *begin);
    Note(h, part);
  }
  return Reserve(h, &h->bits);
}

// Skips up to `count` MCUs in a chunk of the scan. Returns the number of MCUs skipped,
// which may be 0, or -1 if the data are not sound.
inline int SkipInChunk(Huffman* h, unsigned count) {
  if (!Reserve(h, &h->bits)) return -1;
  const Chunk& chunk = h->chunk;
  const unsigned begin = BitIn(chunk, h->bits);
  if (static_cast<unsigned>(chunk.size) * 8 - begin < kMinChunkBytes * 8) return 0;
  const int num_blocks = h->skipped.num_blocks;
  const unsigned most =
      std::min(count, kMaxChunkBlocks / static_cast<unsigned>(num_blocks));
  const int num_skipped =
      SkipBlocks(chunk, h->skipped, StretchOf(*h, begin, most),
                 static_cast<int>(most) * num_blocks, h->begins, h->second_begins);
  const int num_mcus = std::min(num_skipped / num_blocks, static_cast<int>(count));
  return MovePast(h, num_mcus) ? num_mcus : -1;
}

// Skips MCUs. Returns whether the MCUs were sound.
inline bool SkipMcus(Huffman* h, const jpeg_decompress_struct& info, unsigned count) {
  while (count > 0) {
    int num_mcus = count < kMinChunkMcus ? 0 : SkipInChunk(h, count);
    if (num_mcus < 0) return false;
    if (num_mcus == 0) {
      if (!TakeBlocks(h, info, nullptr)) return false;
      Note(h, 1);
      num_mcus = 1;
    }
    count -= static_cast<unsigned>(num_mcus);
  }
  return true;
}

// Moves to the last entry point before the next wanted MCU, if the point is ahead.
// Returns whether the point lies within the scan.
inline bool Jump(Huffman* h) {
  const uint32_t step = h->points->step, count = (h->mcu + h->num_passed) / step;
  if (count == 0 || count > h->points->num_points) return true;
  const uint32_t mcu = count * step;
  if (mcu <= h->mcu) return true;
  const EntryPoint point = PointAt(*h->points, count - 1);
  if (point.bit_offset >> 3 >= static_cast<uint64_t>(h->end - h->begin)) return false;
  MoveTo(h, h->begin + (point.bit_offset >> 3), point.bit_offset & 7);
  static_assert(sizeof(h->last_dc) == sizeof(point.dc), "one value for each component");
  memcpy(h->last_dc, point.dc, sizeof(h->last_dc));
  h->num_passed -= mcu - h->mcu;
  h->mcu = mcu;
  return true;
}

// Skips the MCUs of `num_passed`. Returns whether the MCUs were sound.
inline bool CatchUp(Huffman* h, const jpeg_decompress_struct& info) {
  if (h->points != nullptr) {
    if (!Jump(h)) return false;
  } else if (h->restart_interval > 0) {
    while (h->num_passed >= h->before_restart) {
      if (!PassInterval(h)) return false;
    }
  }
  const unsigned count = h->num_passed;
  h->num_passed = 0;
  h->before_restart -= count;
  h->mcu += count;
  return SkipMcus(h, info, count);
}

// Stands for libjpeg's decode_mcu: reads a wanted MCU, or counts an MCU to skip.
// Returns whether the data were sound.
inline bool TakeMcu(Huffman* h, const jpeg_decompress_struct& info, JBLOCKROW* blocks) {
  const bool wanted =
      blocks != nullptr && h->column >= h->first_column && h->column <= h->last_column;
  if (++h->column == h->num_columns) h->column = 0;
  if (!wanted) {
    ++h->num_passed;
    return true;
  }
  if (h->num_passed > 0 || h->restart_interval > 0) {
    if (!CatchUp(h, info)) return false;
  }
  --h->before_restart;
  ++h->mcu;
  return TakeBlocks(h, info, blocks);
}

// Returns, after the last wanted MCU, whether libjpeg would have read the MCUs after
// it. Only the end of the data stops libjpeg there. A JPEG with entry points is sound
// up to EOI.
inline bool End(Huffman* h, const jpeg_decompress_struct& info) {
  if (h->points != nullptr) return true;
  if (h->restart_interval == 0) return CatchUp(h, info);
  while (h->num_passed > h->before_restart) {
    if (!PassInterval(h)) return false;
  }
  return h->num_passed == 0 || EndsInMarker(*h);
}

// Returns whether the image has one sequential Huffman scan. A lossless JPEG may lack
// tables.
inline bool IsPlain(const jpeg_decompress_struct& info) {
  if (info.progressive_mode || info.arith_code ||
      info.comps_in_scan != info.num_components) {
    return false;
  }
  for (int i = 0; i < info.comps_in_scan; ++i) {
    const jpeg_component_info& component = *info.cur_comp_info[i];
    if (info.dc_huff_tbl_ptrs[component.dc_tbl_no] == nullptr ||
        info.ac_huff_tbl_ptrs[component.ac_tbl_no] == nullptr) {
      return false;
    }
  }
  return true;
}

// Fills the tables of the scan.
inline void FillTables(const jpeg_decompress_struct& info, Huffman* h) {
  SkippedMcu* mcu = &h->skipped;
  for (int i = 0; i < info.comps_in_scan; ++i) {
    const jpeg_component_info& component = *info.cur_comp_info[i];
    DcTable* dc = &h->dc[component.dc_tbl_no];
    AcTable* ac = &h->ac[component.ac_tbl_no];
    FillTable(*info.dc_huff_tbl_ptrs[component.dc_tbl_no], dc);
    FillTable(*info.ac_huff_tbl_ptrs[component.ac_tbl_no], ac);
    SkippedComponent* skipped = &mcu->components[i];
    *skipped = {{nullptr, ac->skips}, dc, ac};
    // Components with equal tables share a StartTable, to save L1 cache.
    for (int j = 0; j < i; ++j) {
      const SkippedComponent& before = mcu->components[j];
      if (before.dc == dc && before.ac == ac) skipped->looks = before.looks;
    }
    if (skipped->looks.starts != nullptr) continue;
    FillTable(dc->source, *ac, &h->starts[i]);
    skipped->looks.starts = h->starts[i].looks;
  }
  mcu->num_blocks = info.blocks_in_MCU;
  mcu->cycle = mcu->num_blocks;
  while (mcu->cycle < kGroup) mcu->cycle += mcu->num_blocks;
  for (int i = 0; i <= mcu->cycle + kGroup; ++i) {
    const int component = info.MCU_membership[i % info.blocks_in_MCU];
    mcu->component_of[i] = component;
    mcu->looks[i] = mcu->components[component].looks;
  }
}

// Starts at the first MCU, with tables that are filled. In each row, the MCUs from
// `first_column` to `last_column` are wanted. `points` may be null; entry points that
// do not fit the image are not used.
inline void BeginScan(const jpeg_decompress_struct& info, int first_column,
                      int last_column, const EntryPoints* points, Huffman* h) {
  const uint8_t* data = info.src->next_input_byte;
  h->end = data + info.src->bytes_in_buffer;
  h->column = 0;
  h->num_columns = info.MCUs_per_row;
  h->first_column = first_column;
  h->last_column = last_column;
  h->restart_interval = h->before_restart = info.restart_interval;
  h->num_passed = h->restart = 0;
  h->begin = data;
  h->chunk.begin = h->chunk.end = data;
  h->chunk.size = h->chunk.num_stuffed = 0;
  h->chunk.is_last = false;
  h->bits = {0, 0, h->chunk.bytes};
  h->mcu_bytes = uint64_t{info.src->bytes_in_buffer} * 256 /
                 (uint64_t{info.MCUs_per_row} * info.MCU_rows_in_scan);
  h->notes = nullptr;
  h->mcu = 0;
  const bool fit =
      points != nullptr && info.restart_interval == 0 &&
      points->num_components == info.comps_in_scan &&
      points->num_mcus == uint64_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
  h->points = fit ? points : nullptr;
  memset(h->last_dc, 0, sizeof(h->last_dc));
}

// Fills the tables, and starts at the first MCU.
inline void Begin(const jpeg_decompress_struct& info, int first_column, int last_column,
                  const EntryPoints* points, Huffman* h) {
  FillTables(info, h);
  BeginScan(info, first_column, last_column, points, h);
}

}  // namespace tfpipe

#endif
