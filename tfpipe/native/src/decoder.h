// Decodes with libjpeg from memory; errors become messages, and nothing is printed.
//
// crop_core.h, record_ops.cc, transcoder.h and entry_points.cc use this file.
#ifndef TFPIPE_NATIVE_DECODER_H_
#define TFPIPE_NATIVE_DECODER_H_

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>

#include <algorithm>

#include "external/libjpeg_turbo/jpeglib.h"

#include "external/libjpeg_turbo/jerror.h"

namespace tfpipe {

// Values of a decoded image: the limit of TensorFlow.
constexpr int64_t kMaxImageValues = int64_t{1} << 29;
constexpr int kMaxScans = 500;  // a progressive image has about ten
constexpr int kMessageLength = JMSG_LENGTH_MAX + 100;

struct Huffman;

// After a fatal error libjpeg jumps (longjmp) to where decoding began, and destructors
// in between do not run. No object with a destructor may live there.
struct Decoder {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  jmp_buf jump;
  void* (*allocate)(j_common_ptr info, int pool, size_t size);  // of libjpeg
  char* message;
  Huffman* huffman;  // null leaves the codes to libjpeg
};

// The values that setjmp returns.
enum { kFailed = 1, kOdd = 2 };

[[noreturn]] inline void Fail(Decoder* decoder) { longjmp(decoder->jump, kFailed); }

[[noreturn]] inline void OnError(j_common_ptr info) {
  Decoder* decoder = static_cast<Decoder*>(info->client_data);
  char reason[JMSG_LENGTH_MAX];
  info->err->format_message(info, reason);
  snprintf(decoder->message, kMessageLength, "The JPEG data are bad: %s", reason);
  Fail(decoder);
}

// Warnings are counted and not printed. Warnings are no errors, as in the stock op:
// many photographs cause some.
inline void OnMessage(j_common_ptr info, int level) {
  if (level < 0) ++info->err->num_warnings;
}

inline void OnProgress(j_common_ptr info) {
  Decoder* decoder = static_cast<Decoder*>(info->client_data);
  if (!info->is_decompressor || decoder->info.input_scan_number <= kMaxScans) return;
  snprintf(decoder->message, kMessageLength,
           "The JPEG data are bad: more than %d scans.", kMaxScans);
  Fail(decoder);
}

// All bytes are in memory from the start, so a request for more means the end of data.
inline boolean OnEnd(j_decompress_ptr info) {
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

inline void OnSkip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) OnEnd(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= count;
}

inline void Ignore(j_decompress_ptr) {}

// Must run before setjmp, so that the decoder may be destroyed at any time.
inline void Reset(Decoder* decoder, char* message, Huffman* huffman) {
  decoder->message = message;
  decoder->huffman = huffman;
  decoder->info.err = jpeg_std_error(&decoder->errors);
  decoder->info.client_data = decoder;
  decoder->errors.error_exit = OnError;
  decoder->errors.emit_message = OnMessage;
}

// Allocates all memory for a single image.
inline void* AllocateForImage(j_common_ptr info, int, size_t size) {
  const auto* decoder = static_cast<Decoder*>(info->client_data);
  return decoder->allocate(info, JPOOL_IMAGE, size);
}

// Makes the decoder ready for jpeg_read_header.
inline void Open(Decoder* decoder, const uint8_t* jpeg, size_t size) {
  jpeg_decompress_struct* info = &decoder->info;
  if (info->mem == nullptr) {
    jpeg_create_decompress(info);
    decoder->allocate = info->mem->alloc_small;
    info->mem->alloc_small = AllocateForImage;
  }
  decoder->progress.progress_monitor = OnProgress;
  info->progress = &decoder->progress;
  decoder->source.init_source = Ignore;
  decoder->source.fill_input_buffer = OnEnd;
  decoder->source.skip_input_data = OnSkip;
  decoder->source.resync_to_restart = jpeg_resync_to_restart;
  decoder->source.term_source = Ignore;
  decoder->source.next_input_byte = jpeg;
  decoder->source.bytes_in_buffer = size;
  info->src = &decoder->source;
  // libjpeg would look for the next marker further on; other readers refuse the image.
  if (size > 2 && jpeg[0] == 0xFF && jpeg[1] == 0xD8 && jpeg[2] != 0xFF) {
    snprintf(decoder->message, kMessageLength,
             "The JPEG data are bad: a marker must follow the first one, got 0x%02x.",
             jpeg[2]);
    Fail(decoder);
  }
}

// Forgets the image: memory, and tables of the header. Open may follow. A new libjpeg
// object would ask the processor for the kinds of instructions (CPUID): microseconds on
// a virtual machine.
inline void Close(Decoder* decoder) {
  jpeg_decompress_struct* info = &decoder->info;
  jpeg_abort_decompress(info);
  std::fill_n(info->quant_tbl_ptrs, NUM_QUANT_TBLS, nullptr);
  std::fill_n(info->dc_huff_tbl_ptrs, NUM_HUFF_TBLS, nullptr);
  std::fill_n(info->ac_huff_tbl_ptrs, NUM_HUFF_TBLS, nullptr);
}

// Reads the sides of an image, in pixels, from its header. Returns whether the header
// was read; otherwise `message` [kMessageLength] has the reason.
inline bool ReadSides(const uint8_t* jpeg, size_t size, int* height, int* width,
                      char* message) {
  Decoder decoder;
  Reset(&decoder, message, nullptr);
  if (setjmp(decoder.jump)) {
    jpeg_destroy_decompress(&decoder.info);
    return false;
  }
  Open(&decoder, jpeg, size);
  jpeg_read_header(&decoder.info, TRUE);
  *height = static_cast<int>(decoder.info.image_height);
  *width = static_cast<int>(decoder.info.image_width);
  jpeg_destroy_decompress(&decoder.info);
  return true;
}

}  // namespace tfpipe

#endif
