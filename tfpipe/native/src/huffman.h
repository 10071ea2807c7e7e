// Baseline Huffman decoding of the MCUs that a crop box needs: faster than libjpeg's.
//
// codes.h reads the blocks. Blocks outside the crop box are only skipped over; if a restart
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

#include "codes.h"
#include "entry_points.h"

// The start of libjpeg's private decoder object: its first two members, which have not
// changed since 1991.
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr info);
  boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW* blocks);
};

namespace tfpipe {

struct Huffman : CodesEnd {
  FirstTable dc[NUM_HUFF_TBLS];
  OtherTable ac[NUM_HUFF_TBLS];
  Bits bits;
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
    const FirstTable& dc = h->dc[component.dc_tbl_no];
    const OtherTable& ac = h->ac[component.ac_tbl_no];
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

// Returns whether this decoder can decode an image. A lossless one may lack tables.
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

// Starts at the first MCU; only the given columns of each row are wanted.
// The entry points may be null, and are not used if they do not fit the image.
inline void Begin(const jpeg_decompress_struct& info, int first_column, int last_column,
                  const EntryPoints* points, Huffman* h) {
  for (int i = 0; i < info.comps_in_scan; ++i) {
    const jpeg_component_info& component = *info.cur_comp_info[i];
    FillTable(*info.dc_huff_tbl_ptrs[component.dc_tbl_no], &h->dc[component.dc_tbl_no]);
    FillTable(*info.ac_huff_tbl_ptrs[component.ac_tbl_no], &h->ac[component.ac_tbl_no]);
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
