// Checks the codes of a JPEG up to its end marker: see tfpipe_check in rewrite.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decoder.h"
#include "huffman.h"
#include "rewrite.h"

namespace tfpipe {
namespace {

// Some encoders write a few bytes between the last code and the next marker.
constexpr int kMaxPadding = 3;

// Returns whether a warning of libjpeg is about damaged codes. libjpeg goes on after
// each warning, with wrong pixels or gray ones.
bool IsDamage(const jpeg_error_mgr& errors) {
  switch (errors.msg_code) {
    case JWRN_EXTRANEOUS_DATA: return errors.msg_parm.i[0] > kMaxPadding;
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: return true;
    default:  // about metadata, or the order of scans
      return false;
  }
}

// Keeps the first warning about damage, and counts such warnings.
void OnWarning(j_common_ptr info, int level) {
  if (level >= 0 || !IsDamage(*info->err)) return;
  if (info->err->num_warnings++ > 0) return;
  info->err->format_message(info, static_cast<Decoder*>(info->client_data)->message);
}

void OnFatal(j_common_ptr info) {
  Decoder* decoder = static_cast<Decoder*>(info->client_data);
  info->err->format_message(info, decoder->message);
  Fail(decoder);
}

void OpenToCheck(Decoder* decoder, const uint8_t* jpeg, size_t size) {
  Open(decoder, jpeg, size);
  decoder->info.progress = nullptr;  // the caller limits the scans
  jpeg_read_header(&decoder->info, TRUE);
}

// Reads the codes of a baseline JPEG without their values, in a third of the time of
// libjpeg. Returns whether the end marker follows the last code.
bool IsSoundBaseline(Decoder* decoder, const uint8_t* jpeg, size_t size) {
  if (setjmp(decoder->jump)) return false;
  OpenToCheck(decoder, jpeg, size);
  jpeg_decompress_struct* info = &decoder->info;
  if (info->data_precision != 8 || info->restart_interval != 0) return false;
  if (info->progressive_mode || info->arith_code ||
      info->comps_in_scan != info->num_components) {
    return false;
  }
  jpeg_start_decompress(info);
  if (info->min_DCT_scaled_size != DCTSIZE || !IsPlain(*info)) return false;
  Huffman* h = decoder->huffman;
  Begin(*info, 0, 0, nullptr, h);
  const uint64_t num_mcus = uint64_t{info->MCUs_per_row} * info->MCU_rows_in_scan;
  if (num_mcus > 8 * static_cast<uint64_t>(h->end - h->begin)) return false;
  if (!SkipMcus(h, *info, static_cast<unsigned>(num_mcus))) return false;
  const uint8_t* marker = h->begin + (BitOffset(*h) + 7) / 8;
  return h->end - marker >= 2 && marker[0] == 0xff && marker[1] == JPEG_EOI;
}

// Lets libjpeg read the whole image, with one pixel for each block.
const char* Judge(Decoder* decoder, const uint8_t* jpeg, size_t size,
                  JSAMPLE* volatile* row) {
  if (setjmp(decoder->jump)) {
    return decoder->errors.msg_code == JERR_OUT_OF_MEMORY ? "no_memory" : "failed";
  }
  OpenToCheck(decoder, jpeg, size);
  jpeg_decompress_struct* info = &decoder->info;
  info->scale_num = 1;
  info->scale_denom = DCTSIZE;
  info->out_color_space = info->jpeg_color_space;
  info->do_fancy_upsampling = FALSE;
  jpeg_start_decompress(info);
  const size_t width = info->output_width;
  *row = static_cast<JSAMPLE*>(malloc(width * info->output_components + 1));
  if (*row == nullptr) return "no_memory";
  JSAMPROW rows[1] = {*row};
  while (info->output_scanline < info->output_height) {
    jpeg_read_scanlines(info, rows, 1);
  }
  jpeg_finish_decompress(info);
  return info->err->num_warnings > 0 ? "corrupt" : nullptr;
}

void Prepare(Decoder* decoder, char* message, Huffman* huffman) {
  Reset(decoder, message, huffman);
  decoder->errors.error_exit = OnFatal;
  decoder->errors.emit_message = OnWarning;
}

}  // namespace
}  // namespace tfpipe

const char* tfpipe_check(const uint8_t* jpeg, size_t size, char* message) {
  static thread_local tfpipe::Huffman huffman;
  tfpipe::Decoder decoder;
  tfpipe::Prepare(&decoder, message, &huffman);
  const bool sound = tfpipe::IsSoundBaseline(&decoder, jpeg, size);
  jpeg_destroy_decompress(&decoder.info);
  message[0] = '\0';
  if (sound) return nullptr;
  tfpipe::Prepare(&decoder, message, nullptr);
  JSAMPLE* volatile row = nullptr;
  const char* word = tfpipe::Judge(&decoder, jpeg, size, &row);
  jpeg_destroy_decompress(&decoder.info);
  free(row);
  return word;
}
