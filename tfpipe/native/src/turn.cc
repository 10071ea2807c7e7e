// Turns and mirrors an image by its coefficients, without loss: jpegtran -rotate,
// -flip, -transpose and -transverse with -perfect.
//
//   pixels of a block        coefficients of the block
//   mirrored left and right  odd columns (horizontal frequencies) change their sign
//   mirrored up and down     odd rows (vertical frequencies) change their sign
//   rows become columns      rows become columns
//
// Metadata are dropped, because an EXIF orientation and a thumbnail would be wrong
// after the turn. libjpeg writes new markers for the colors.
#include <stdlib.h>

#include <algorithm>

#include "rewrite.h"
#include "transcoder.h"

namespace tfpipe {
namespace {

// How to turn an image: first mirror the source, then make rows columns.
//
//   EXIF orientation  1  2  3  4  5  6  7  8
//   mirrors x            x  x           x  x
//   mirrors y               x  x     x  x
//   transposes                    x  x  x  x
struct Turn {
  bool mirrors_x, mirrors_y, transposes;
};

// Rows of blocks turned together: longer runs of memory are read and written.
constexpr JDIMENSION kStripe = 8;

// Largest coefficient of 8-bit samples (T.81, F.1.2.2: 10 bits). libjpeg's Huffman
// encoder does not check the size.
constexpr int kMaxValue = 1023;

// Bit n stands for EXIF orientation n, see Turn.
constexpr int kMirrorsX = 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8;
constexpr int kMirrorsY = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7;
constexpr int kTransposes = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;

Turn TurnOf(int orientation) {
  return {(kMirrorsX >> orientation & 1) != 0, (kMirrorsY >> orientation & 1) != 0,
          (kTransposes >> orientation & 1) != 0};
}

// Returns whether each side to mirror ends with a whole block of each component.
bool IsPossible(const jpeg_decompress_struct& source, const Turn& turn) {
  for (int i = 0; i < source.num_components; ++i) {
    const jpeg_component_info& component = source.comp_info[i];
    const bool whole_x =
        int64_t{component.width_in_blocks} * DCTSIZE * source.max_h_samp_factor ==
        int64_t{source.image_width} * component.h_samp_factor;
    const bool whole_y =
        int64_t{component.height_in_blocks} * DCTSIZE * source.max_v_samp_factor ==
        int64_t{source.image_height} * component.v_samp_factor;
    if ((turn.mirrors_x && !whole_x) || (turn.mirrors_y && !whole_y)) return false;
  }
  return true;
}

// The source index and the sign of each coefficient of a turned block, row by row.
struct BlockTurn {
  uint8_t index[DCTSIZE2];
  JCOEF sign[DCTSIZE2];
};

BlockTurn BlockTurnOf(const Turn& turn) {
  BlockTurn result;
  for (int k = 0; k < DCTSIZE2; ++k) {
    int row = k / DCTSIZE, column = k % DCTSIZE;
    if (turn.transposes) std::swap(row, column);
    const bool negates = (turn.mirrors_x && column % 2) != (turn.mirrors_y && row % 2);
    result.index[k] = static_cast<uint8_t>(row * DCTSIZE + column);
    result.sign[k] = negates ? -1 : 1;
  }
  return result;
}

// Exchanges width and height in the header, and rows and columns of the quantization
// tables.
void TransposeParameters(jpeg_compress_struct* target) {
  std::swap(target->image_width, target->image_height);
  std::swap(target->X_density, target->Y_density);
  for (int i = 0; i < target->num_components; ++i) {
    std::swap(target->comp_info[i].h_samp_factor, target->comp_info[i].v_samp_factor);
  }
  for (JQUANT_TBL* table : target->quant_tbl_ptrs) {
    if (table == nullptr) continue;
    for (int row = 0; row < DCTSIZE; ++row) {
      for (int column = 0; column < row; ++column) {
        std::swap(table->quantval[row * DCTSIZE + column],
                  table->quantval[column * DCTSIZE + row]);
      }
    }
  }
}

// Returns the number of blocks with the blocks added to complete the last MCU (T.81,
// A.2.4).
JDIMENSION Padded(JDIMENSION num_blocks, int sampling) {
  const JDIMENSION factor = static_cast<JDIMENSION>(sampling);
  return (num_blocks + factor - 1) / factor * factor;
}

// Writes one block. Returns an OR of the magnitudes of all values. A negative DC value
// counts as one less, because the DC range has one more negative value.
int TurnBlock(const JCOEF* values, const BlockTurn& block, JCOEF* result) {
  int bits = values[0] ^ (values[0] >> 15);
  result[0] = values[0];
  for (int k = 1; k < DCTSIZE2; ++k) {
    const int value = block.sign[k] * values[block.index[k]];
    bits |= std::abs(value);
    result[k] = static_cast<JCOEF>(value);
  }
  return bits;
}

// Writes the blocks of up to kStripe rows of the source, from row `first` on. Returns
// an OR of the magnitudes of all values.
int TurnStripe(const JBLOCKROW* stripe, JDIMENSION first, JDIMENSION num_rows,
               const jpeg_component_info& component, const Turn& turn,
               const BlockTurn& block, JBLOCKARRAY to) {
  int bits = 0;
  for (JDIMENSION i = 0; i < component.width_in_blocks; ++i) {
    for (JDIMENSION j = 0; j < num_rows; ++j) {
      const JDIMENSION x = turn.mirrors_x ? component.width_in_blocks - 1 - i : i;
      const JDIMENSION row = first + j;
      const JDIMENSION y = turn.mirrors_y ? component.height_in_blocks - 1 - row : row;
      bits |= TurnBlock(stripe[j][i], block, turn.transposes ? to[x][y] : to[y][x]);
    }
  }
  return bits;
}

// Writes the blocks of a component. Returns an OR of the magnitudes of all values.
int TurnComponent(jpeg_decompress_struct* source, const jpeg_component_info& component,
                  jvirt_barray_ptr from, const Turn& turn, JBLOCKARRAY to) {
  const BlockTurn block = BlockTurnOf(turn);
  int bits = 0;
  JBLOCKROW stripe[kStripe];
  for (JDIMENSION row = 0; row < component.height_in_blocks; row += kStripe) {
    const JDIMENSION num_rows = std::min(kStripe, component.height_in_blocks - row);
    for (JDIMENSION i = 0; i < num_rows; ++i) {
      // The row does not move: libjpeg keeps the whole image in memory.
      stripe[i] = source->mem->access_virt_barray(
          reinterpret_cast<j_common_ptr>(source), from, row + i, 1, FALSE)[0];
    }
    bits |= TurnStripe(stripe, row, num_rows, component, turn, block, to);
  }
  return bits;
}

// Returns the turned coefficients, owned by the encoder's memory manager. Returns null
// if a coefficient is larger than in any picture.
jvirt_barray_ptr* TurnCoefficients(Transcoder* transcoder, jvirt_barray_ptr* from,
                                   const Turn& turn) {
  jpeg_decompress_struct* source = &transcoder->decoder.info;
  jpeg_memory_mgr* memory = transcoder->target.mem;
  const j_common_ptr common = reinterpret_cast<j_common_ptr>(&transcoder->target);
  auto** to = static_cast<jvirt_barray_ptr*>(memory->alloc_small(
      common, JPOOL_IMAGE, sizeof(jvirt_barray_ptr) * MAX_COMPONENTS));
  JDIMENSION heights[MAX_COMPONENTS];
  for (int i = 0; i < source->num_components; ++i) {
    const jpeg_component_info& component = source->comp_info[i];
    JDIMENSION width = Padded(component.width_in_blocks, component.h_samp_factor);
    heights[i] = Padded(component.height_in_blocks, component.v_samp_factor);
    if (turn.transposes) std::swap(width, heights[i]);
    to[i] = memory->request_virt_barray(common, JPOOL_IMAGE, TRUE, width, heights[i],
                                        heights[i]);
  }
  memory->realize_virt_arrays(common);
  int bits = 0;
  for (int i = 0; i < source->num_components; ++i) {
    JBLOCKARRAY rows = memory->access_virt_barray(common, to[i], 0, heights[i], TRUE);
    bits |= TurnComponent(source, source->comp_info[i], from[i], turn, rows);
  }
  return bits > kMaxValue ? nullptr : to;
}

const char* TurnUpright(Transcoder* transcoder, const Turn& turn, bool keeps_markers) {
  jpeg_decompress_struct* source = &transcoder->decoder.info;
  if (keeps_markers) SaveMarkers(source);
  jpeg_read_header(source, TRUE);
  if (const char* reason = Refuse(*source)) return reason;
  if (source->num_components != 1 && source->num_components != 3) return "components";
  if (!IsPossible(*source, turn)) return "edge";
  const int num_markers = CountMarkers(*source);
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(source);
  if (source->err->num_warnings > 0) return "damaged";
  if (CountMarkers(*source) != num_markers) return "late_markers";
  if (IsIncomplete(*source)) return "incomplete";
  transcoder->reason = "unwritable";
  Prepare(transcoder);
  if (turn.transposes) TransposeParameters(&transcoder->target);
  jvirt_barray_ptr* turned = TurnCoefficients(transcoder, coefficients, turn);
  if (turned == nullptr) return transcoder->reason;
  if (keeps_markers) {
    transcoder->target.restart_interval = source->restart_interval;
    WriteWithMarkers(transcoder, turned);
    return nullptr;
  }
  jpeg_write_coefficients(&transcoder->target, turned);
  jpeg_finish_compress(&transcoder->target);
  return nullptr;
}

const char* Turned(const uint8_t* jpeg, size_t size, int orientation,
                   bool keeps_markers, uint8_t** result, size_t* result_size) {
  const auto steps = [=](Transcoder* transcoder) {
    return TurnUpright(transcoder, TurnOf(orientation), keeps_markers);
  };
  return Transcode(jpeg, size, steps, result, result_size);
}

}  // namespace

const char* Mirrored(const uint8_t* jpeg, size_t size, uint8_t** result,
                     size_t* result_size) {
  return Turned(jpeg, size, 2, true, result, result_size);
}

}  // namespace tfpipe

const char* tfpipe_turn(const uint8_t* jpeg, size_t size, int orientation,
                        uint8_t** result, size_t* result_size) {
  return tfpipe::Turned(jpeg, size, orientation, false, result, result_size);
}
