// Reads the MCUs of an image with several components, and transforms the MCUs that a
// crop box needs, row by row, in offset of libjpeg's decompress_data. libjpeg does all
// later steps.
//
// Without AVX2, and for other images, libjpeg asks for each MCU and transforms it. The
// pixels are equal.
#ifndef TFPIPE_NATIVE_MCU_ROWS_H_
#define TFPIPE_NATIVE_MCU_ROWS_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "decoder.h"
#include "huffman.h"
#include "idct.h"

// The first members of libjpeg's private objects, unchanged since 1991.
struct jpeg_inverse_dct {
  void (*start_pass)(j_decompress_ptr info);
  void (*inverse_DCT[MAX_COMPONENTS])(j_decompress_ptr info,
                                      jpeg_component_info* component, JCOEFPTR block,
                                      JSAMPARRAY rows, JDIMENSION column);
};

struct jpeg_d_coef_controller {
  void (*start_input_pass)(j_decompress_ptr info);
  int (*consume_data)(j_decompress_ptr info);
  void (*start_output_pass)(j_decompress_ptr info);
  int (*decompress_data)(j_decompress_ptr info, JSAMPIMAGE output);
};

struct jpeg_input_controller {
  int (*consume_input)(j_decompress_ptr info);
  void (*reset_input_controller)(j_decompress_ptr info);
  void (*start_input_pass)(j_decompress_ptr info);
  void (*finish_input_pass)(j_decompress_ptr info);
};

namespace tfpipe {

struct RowReader : Huffman {
  alignas(32)
      JBLOCK blocks[D_MAX_BLOCKS_IN_MCU];  // of one MCU; libjpeg needs the alignment
};

inline boolean OnMcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  Decoder* decoder = static_cast<Decoder*>(info->client_data);
  if (!TakeMcu(decoder->huffman, *info, blocks)) longjmp(decoder->jump, kOdd);
  return TRUE;
}

// A block of an MCU, moved from MCU to MCU along a row.
struct RowBlock : Block {
  jpeg_component_info* component;
  JDIMENSION step;  // columns from one MCU to the next
};

struct RowBlocks {
  int count;
  RowBlock blocks[D_MAX_BLOCKS_IN_MCU];
};

// Lists the blocks of an MCU (T.81, A.2.3), without blocks beyond the edge of the image
// (A.2.4). `offset` counts the MCUs from the first wanted MCU of the row.
inline void FillBlocks(const jpeg_decompress_struct& info, bool last_column,
                       JDIMENSION offset, JBLOCK* coefficients, JSAMPIMAGE output,
                       RowBlocks* list) {
  list->count = 0;
  const bool last_row = info.input_iMCU_row + 1 == info.total_iMCU_rows;
  for (int i = 0; i < info.comps_in_scan; ++i) {
    jpeg_component_info* component = info.cur_comp_info[i];
    const auto size = static_cast<JDIMENSION>(component->DCT_scaled_size);
    const auto step = static_cast<JDIMENSION>(component->MCU_width) * size;
    const int width = last_column ? component->last_col_width : component->MCU_width;
    const int height = last_row ? component->last_row_height : component->MCU_height;
    for (int y = 0; y < height; ++y) {
      JSAMPARRAY rows =
          output[component->component_index] + static_cast<JDIMENSION>(y) * size;
      for (int x = 0; x < width; ++x) {
        const JDIMENSION column = offset * step + static_cast<JDIMENSION>(x) * size;
        list->blocks[list->count++] = {{coefficients[y * component->MCU_width + x],
                                        component->quant_table->quantval, rows, column},
                                       component,
                                       step};
      }
    }
    coefficients += component->MCU_blocks;
  }
}

// Transforms the blocks of an MCU, two at a time, and moves to the next MCU.
inline void TransformMcu(j_decompress_ptr info, RowBlocks* list) {
  const Block* waiting = nullptr;
  for (int i = 0; i < list->count; ++i) {
    RowBlock* block = &list->blocks[i];
    if (block->component->DCT_scaled_size != DCTSIZE) {
      info->idct->inverse_DCT[block->component->component_index](
          info, block->component, block->coefficients, block->rows, block->column);
    } else if (waiting != nullptr) {
      TransformPair(*waiting, *block);
      waiting = nullptr;
    } else {
      waiting = block;
    }
  }
  if (waiting != nullptr) TransformPair(*waiting, *waiting);
  for (int i = 0; i < list->count; ++i) list->blocks[i].column += list->blocks[i].step;
}

// Reads a row of MCUs, and writes the pixels of the wanted MCUs.
inline int OnRow(j_decompress_ptr info, JSAMPIMAGE output) {
  Decoder* decoder = static_cast<Decoder*>(info->client_data);
  auto* reader = static_cast<RowReader*>(decoder->huffman);
  JBLOCKROW blocks[D_MAX_BLOCKS_IN_MCU];
  for (int i = 0; i < info->blocks_in_MCU; ++i) blocks[i] = &reader->blocks[i];
  const size_t num_bytes = static_cast<size_t>(info->blocks_in_MCU) * sizeof(JBLOCK);
  const int first = reader->first_column, end = static_cast<int>(info->MCUs_per_row);
  RowBlocks list;
  for (int i = 0; i < end; ++i) {
    const bool wanted = i >= first && i <= reader->last_column;
    if (wanted) memset(reader->blocks, 0, num_bytes);
    OnMcu(info, wanted ? blocks : nullptr);
    if (!wanted) continue;
    if (i == first || i + 1 == end) {
      FillBlocks(*info, i + 1 == end, static_cast<JDIMENSION>(i - first),
                 reader->blocks, output, &list);
    }
    TransformMcu(info, &list);
  }
  ++info->output_iMCU_row;
  if (++info->input_iMCU_row < info->total_iMCU_rows) return JPEG_ROW_COMPLETED;
  info->inputctl->finish_input_pass(info);
  return JPEG_SCAN_COMPLETED;
}

// Takes over the MCUs. Decoding must have started.
inline void TakeOver(jpeg_decompress_struct* info) {
  info->entropy->decode_mcu = OnMcu;
  const bool can_transform =
      info->comps_in_scan > 1 && info->min_DCT_scaled_size <= DCTSIZE;
  if (can_transform && HasAvx2()) info->coef->decompress_data = OnRow;
}

}  // namespace tfpipe

#endif
