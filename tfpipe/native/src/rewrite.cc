// Writes the same coefficients as one sequential scan, with a restart marker after each
// row of MCUs and Huffman tables fitted to the image: jpegtran -restart 1 -optimize.
//
// Every decoder gives the same pixels. The crop op finds the rows of a crop box by these
// markers (huffman.h).
#include "rewrite.h"

#include "transcoder.h"

namespace tfpipe {
namespace {

constexpr unsigned kMaxMarkerLength = 0xffff;

int CountMarkers(const jpeg_decompress_struct& source) {
  int count = 0;
  for (auto* marker = source.marker_list; marker; marker = marker->next) ++count;
  return count;
}

void Write(Transcoder* transcoder, jvirt_barray_ptr* coefficients) {
  const jpeg_decompress_struct& source = transcoder->decoder.info;
  jpeg_compress_struct* target = &transcoder->target;
  Prepare(transcoder);
  target->optimize_coding = TRUE;
  target->restart_in_rows = 1;
  // The source's markers are copied byte for byte: decoders tell colors by them.
  target->write_JFIF_header = FALSE;
  target->write_Adobe_marker = FALSE;
  jpeg_write_coefficients(target, coefficients);
  for (auto* marker = source.marker_list; marker; marker = marker->next) {
    jpeg_write_marker(target, marker->marker, marker->data, marker->data_length);
  }
  jpeg_finish_compress(target);
}

const char* Rewrite(Transcoder* transcoder) {
  jpeg_decompress_struct* source = &transcoder->decoder.info;
  for (int i = 0; i < 16; ++i) {
    jpeg_save_markers(source, JPEG_APP0 + i, kMaxMarkerLength);
  }
  jpeg_save_markers(source, JPEG_COM, kMaxMarkerLength);
  jpeg_read_header(source, TRUE);
  if (const char* reason = Refuse(*source)) return reason;
  const int num_markers = CountMarkers(*source);
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(source);
  if (source->err->num_warnings > 0) return "damaged";
  if (CountMarkers(*source) != num_markers) return "late_markers";
  if (IsIncomplete(*source)) return "incomplete";
  transcoder->reason = "unwritable";
  Write(transcoder, coefficients);
  return nullptr;
}

}  // namespace
}  // namespace tfpipe

const char* tfpipe_rewrite(const uint8_t* jpeg, size_t size, uint8_t** made,
                           size_t* made_size) {
  return tfpipe::Transcode(jpeg, size, tfpipe::Rewrite, made, made_size);
}

void tfpipe_free(uint8_t* made) { free(made); }
