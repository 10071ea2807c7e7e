// Writes the same coefficients as a sequential scan, with a restart marker after each
// row of MCUs and Huffman tables fitted to the image: jpegtran -restart 1 -optimize.
//
// Every decoder gives the same pixels. The crop op finds rows by the markers
// (huffman.h).
#include "rewrite.h"

#include "transcoder.h"

namespace tfpipe {
namespace {

const char* Rewrite(Transcoder* transcoder, int restart_rows) {
  jpeg_decompress_struct* source = &transcoder->decoder.info;
  SaveMarkers(source);
  jpeg_read_header(source, TRUE);
  if (const char* reason = Refuse(*source)) return reason;
  const int num_markers = CountMarkers(*source);
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(source);
  if (source->err->num_warnings > 0) return "damaged";
  if (CountMarkers(*source) != num_markers) return "late_markers";
  if (IsIncomplete(*source)) return "incomplete";
  transcoder->reason = "unwritable";
  Prepare(transcoder);
  transcoder->target.restart_in_rows = restart_rows;
  WriteWithMarkers(transcoder, coefficients);
  return nullptr;
}

}  // namespace

const char* Rewritten(const uint8_t* jpeg, size_t size, int restart_rows,
                      uint8_t** result, size_t* result_size) {
  const auto steps = [restart_rows](Transcoder* transcoder) {
    return Rewrite(transcoder, restart_rows);
  };
  return Transcode(jpeg, size, steps, result, result_size);
}

}  // namespace tfpipe

const char* tfpipe_rewrite(const uint8_t* jpeg, size_t size, uint8_t** result,
                           size_t* result_size) {
  return tfpipe::Rewritten(jpeg, size, 1, result, result_size);
}

void tfpipe_free(uint8_t* result) { free(result); }
