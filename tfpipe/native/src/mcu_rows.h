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

#include <vector>

#include "decoder.h"
#include "huffman.h"
#include "idct.h"
#include "two_rows.h"

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

// Reads the MCUs of a row, or of two rows in turns. The pixels of the second row then
// wait until libjpeg asks for the row. `next` uses the tables of the reader.
struct RowReader : Huffman {
  // Of an MCU of each row; libjpeg needs the alignment.
  alignas(32) JBLOCK blocks[2][D_MAX_BLOCKS_IN_MCU];
  unsigned last_row;     // the last row of MCUs that may be the second row of two
  unsigned waiting_row;  // the row of MCUs in `pixels`, or the number of rows
  Huffman next;          // at the second row
  std::vector<JSAMPLE> pixels;
  std::vector<JSAMPROW> rows;  // of all components, in `pixels`

  int num_wanted() const { return last_column - first_column + 1; }
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

// The blocks of an MCU in a row of MCUs.
struct RowBlocks {
  JSAMPIMAGE output;
  JBLOCK* coefficients;
  JDIMENSION row;
  int first_column, last_column, column;  // the wanted MCUs, and the next MCU
  int count = 0;
  RowBlock blocks[D_MAX_BLOCKS_IN_MCU] = {};
  bool is_waiting = false;  // the last block, for the first block of the next MCU
  Block waiting = {};
  alignas(32) JBLOCK waiting_coefficients = {};
};

// Lists the blocks of an MCU (T.81, A.2.3), without blocks beyond the edge of the image
// (A.2.4).
inline void FillBlocks(const jpeg_decompress_struct& info, RowBlocks* list) {
  list->count = 0;
  JBLOCK* coefficients = list->coefficients;
  const auto offset = static_cast<JDIMENSION>(list->column - list->first_column);
  const bool last_column = list->column + 1 == static_cast<int>(info.MCUs_per_row);
  const bool last_row = list->row + 1 == info.total_iMCU_rows;
  for (int i = 0; i < info.comps_in_scan; ++i) {
    jpeg_component_info* component = info.cur_comp_info[i];
    const auto size = static_cast<JDIMENSION>(component->DCT_scaled_size);
    const auto step = static_cast<JDIMENSION>(component->MCU_width) * size;
    const int width = last_column ? component->last_col_width : component->MCU_width;
    const int height = last_row ? component->last_row_height : component->MCU_height;
    for (int y = 0; y < height; ++y) {
      JSAMPARRAY rows =
          list->output[component->component_index] + static_cast<JDIMENSION>(y) * size;
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

// Keeps the last block of an MCU for the first block of the next MCU.
inline void Keep(const Block& block, RowBlocks* list) {
  memcpy(list->waiting_coefficients, block.coefficients, sizeof(JBLOCK));
  list->waiting = block;
  list->waiting.coefficients = list->waiting_coefficients;
  list->is_waiting = true;
}

// Transforms the blocks of an MCU, two at a time, and moves to the next MCU. An MCU
// without subsampling has three blocks: the last block waits for the next MCU.
inline void TransformMcu(j_decompress_ptr info, RowBlocks* list) {
  const Block* waiting = list->is_waiting ? &list->waiting : nullptr;
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
  list->is_waiting = false;
  if (waiting != nullptr) {
    if (list->column == list->last_column)
      TransformPair(*waiting, *waiting);
    else
      Keep(*waiting, list);
  }
  for (int i = 0; i < list->count; ++i) list->blocks[i].column += list->blocks[i].step;
}

// Writes the pixels of the next wanted MCU of a row; those of its last block perhaps
// with the MCU after it.
inline void PutMcu(j_decompress_ptr info, RowBlocks* list) {
  if (list->column == list->first_column ||
      list->column + 1 == static_cast<int>(info->MCUs_per_row)) {
    FillBlocks(*info, list);
  }
  TransformMcu(info, list);
  ++list->column;
}

// Calls `use` with the index of each component, and the height and width of its pixels
// in the wanted MCUs of a row.
template <typename Use>
inline void EachComponent(const jpeg_decompress_struct& info, int num_wanted,
                          const Use& use) {
  for (int i = 0; i < info.comps_in_scan; ++i) {
    const jpeg_component_info& component = *info.cur_comp_info[i];
    use(component.component_index, component.MCU_height * component.DCT_scaled_size,
        component.MCU_width * component.DCT_scaled_size * num_wanted);
  }
}

// Makes room for the pixels of the second row. Fills its rows of pixels by component.
inline void MakeRoom(const jpeg_decompress_struct& info, RowReader* reader,
                     JSAMPARRAY* output) {
  size_t num_pixels = 0, num_rows = 0;
  EachComponent(info, reader->num_wanted(), [&](int, int height, int width) {
    num_rows += static_cast<size_t>(height);
    num_pixels += static_cast<size_t>(height) * static_cast<size_t>(width);
  });
  if (reader->pixels.size() < num_pixels) reader->pixels.resize(num_pixels);
  if (reader->rows.size() < num_rows) reader->rows.resize(num_rows);
  JSAMPROW pixels = reader->pixels.data();
  JSAMPARRAY row = reader->rows.data();
  EachComponent(info, reader->num_wanted(), [&](int index, int height, int width) {
    output[index] = row;
    for (int y = 0; y < height; ++y, pixels += width) *row++ = pixels;
  });
}

// Moves to the first wanted MCU of the row that begins at MCU `begin`.
inline bool MoveToRow(const jpeg_decompress_struct& info, uint32_t begin, Huffman* h) {
  h->num_passed = begin + static_cast<unsigned>(h->first_column) - h->mcu;
  return CatchUp(h, info);
}

// Reads a row of MCUs and the next row, and writes the pixels of the wanted MCUs.
inline bool TakeTwoRows(j_decompress_ptr info, RowReader* reader, JSAMPIMAGE output) {
  JSAMPARRAY second_output[MAX_COMPONENTS];
  MakeRoom(*info, reader, second_output);
  const unsigned row = info->input_iMCU_row, num_columns = info->MCUs_per_row;
  const int first = reader->first_column, last = reader->last_column;
  RowBlocks list = {output, reader->blocks[0], row, first, last, first};
  RowBlocks second = {second_output, reader->blocks[1], row + 1, first, last, first};
  const uint32_t begin = row * num_columns;
  RowTaker taker, second_taker;
  if (!MoveToRow(*info, begin, reader) ||
      !MoveToRow(*info, begin + num_columns, &reader->next) ||
      !StartRow(reader, reader->blocks[0], &taker) ||
      !StartRow(&reader->next, reader->blocks[1], &second_taker) ||
      !TakeInTurns(
          &taker, &second_taker, [info, &list] { PutMcu(info, &list); },
          [info, &second] { PutMcu(info, &second); })) {
    return false;
  }
  reader->mcu += static_cast<unsigned>(reader->num_wanted());
  reader->next.mcu += static_cast<unsigned>(reader->num_wanted());
  reader->num_passed = begin + num_columns - reader->mcu;
  reader->waiting_row = row + 1;
  return true;
}

// Copies the pixels of the row that TakeTwoRows read before.
inline void CopyWaitingRow(const jpeg_decompress_struct& info, RowReader* reader,
                           JSAMPIMAGE output) {
  JSAMPARRAY row = reader->rows.data();
  EachComponent(info, reader->num_wanted(), [&](int index, int height, int width) {
    for (int y = 0; y < height; ++y)
      memcpy(output[index][y], *row++, static_cast<size_t>(width));
  });
  reader->num_passed += info.MCUs_per_row;
}

// Reads a row of MCUs, and writes the pixels of the wanted MCUs.
inline bool TakeRow(j_decompress_ptr info, RowReader* reader, JSAMPIMAGE output) {
  JBLOCKROW blocks[D_MAX_BLOCKS_IN_MCU];
  for (int i = 0; i < info->blocks_in_MCU; ++i) blocks[i] = &reader->blocks[0][i];
  const size_t num_bytes = static_cast<size_t>(info->blocks_in_MCU) * sizeof(JBLOCK);
  const int first = reader->first_column, last = reader->last_column;
  RowBlocks list = {output, reader->blocks[0], info->input_iMCU_row, first, last,
                    first};
  for (int i = 0; i < static_cast<int>(info->MCUs_per_row); ++i) {
    const bool wanted = i >= first && i <= last;
    if (wanted) memset(reader->blocks[0], 0, num_bytes);
    if (!TakeMcu(reader, *info, wanted ? blocks : nullptr)) return false;
    if (wanted) PutMcu(info, &list);
  }
  return true;
}

// Writes the pixels of the wanted MCUs of a row.
inline int OnRow(j_decompress_ptr info, JSAMPIMAGE output) {
  Decoder* decoder = static_cast<Decoder*>(info->client_data);
  auto* reader = static_cast<RowReader*>(decoder->huffman);
  if (info->input_iMCU_row == reader->waiting_row) {
    CopyWaitingRow(*info, reader, output);
  } else {
    const auto take = info->input_iMCU_row < reader->last_row ? TakeTwoRows : TakeRow;
    if (!take(info, reader, output)) longjmp(decoder->jump, kOdd);
  }
  ++info->output_iMCU_row;
  if (++info->input_iMCU_row < info->total_iMCU_rows) return JPEG_ROW_COMPLETED;
  info->inputctl->finish_input_pass(info);
  return JPEG_SCAN_COMPLETED;
}

// Begins to read in turns the rows of MCUs up to `last_row`, the last row of the crop
// box. Needs entry points. Without a gap between the wanted MCUs of two rows, the way
// from the entry point to the second row would take the time that is saved.
inline void BeginTwoRows(const jpeg_decompress_struct& info, unsigned last_row,
                         RowReader* reader) {
  reader->last_row = 0;
  reader->waiting_row = info.total_iMCU_rows;
  const EntryPoints* points = reader->points;
  const auto gap = info.MCUs_per_row - static_cast<unsigned>(reader->num_wanted());
  if (points == nullptr || 2 * gap < points->step) return;
  reader->last_row = last_row;
  reader->next.skipped = reader->skipped;
  BeginScan(info, reader->first_column, reader->last_column, points, &reader->next);
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
