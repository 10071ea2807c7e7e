// Writes the same coefficients as one sequential scan, with a restart marker after each
// row of MCUs and Huffman tables fitted to the image: jpegtran -restart 1 -optimize.
//
// Every decoder gives the same pixels. The crop op finds the rows of a crop box by these
// markers (huffman.h). This is a plain C library without TensorFlow, for the converters.
#include "rewrite.h"

#include <stdlib.h>

#include "decoder.h"

namespace tfpipe {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 29;  // of a decoded image; TensorFlow's limit
constexpr unsigned kMaxMarkerLength = 0xffff;

// Memory that grows and survives an error; libjpeg would lose its own.
struct Output : jpeg_destination_mgr {
  uint8_t* bytes;
  size_t size;
};

// Decoder and encoder. An error of either ends in the decoder's jump.
struct Rewriter {
  Decoder decoder;
  jpeg_compress_struct target;
  Output output;
  char message[kMessageLength];
  const char* reason;  // why the image is left, if libjpeg fails now
};

void Grow(j_compress_ptr info, size_t size) {
  Output* output = static_cast<Output*>(info->dest);
  const size_t used = output->size;
  uint8_t* bytes = static_cast<uint8_t*>(realloc(output->bytes, size));
  if (bytes == nullptr) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
  output->bytes = bytes;
  output->size = size;
  output->next_output_byte = bytes + used;
  output->free_in_buffer = size - used;
}

void OnBegin(j_compress_ptr info) { Grow(info, 1 << 16); }

// libjpeg calls this when the whole buffer is full, whatever free_in_buffer says.
boolean OnFull(j_compress_ptr info) {
  Grow(info, 2 * static_cast<Output*>(info->dest)->size);
  return TRUE;
}

void OnDone(j_compress_ptr info) {
  static_cast<Output*>(info->dest)->size -= info->dest->free_in_buffer;
}

int CountMarkers(const jpeg_decompress_struct& source) {
  int count = 0;
  for (auto* marker = source.marker_list; marker; marker = marker->next) ++count;
  return count;
}

// Returns whether a decoder would smooth the blocks; it does so in progressive images.
bool IsIncomplete(const jpeg_decompress_struct& source) {
  if (!source.progressive_mode) return false;
  for (int i = 0; i < source.num_components; ++i) {
    for (int k = 0; k < DCTSIZE2; ++k) {
      if (source.coef_bits[i][k] != 0) return true;
    }
  }
  return false;
}

// Returns from the header why an image must stay as it is, or null.
const char* Refuse(const jpeg_decompress_struct& source) {
  const int64_t height = source.image_height, width = source.image_width;
  if (source.data_precision != 8) return "precision";
  if (source.arith_code) return "arithmetic";
  if (height * width * source.num_components >= kMaxBytes) return "too_many_pixels";
  return nullptr;
}

void Write(Rewriter* rewriter, jvirt_barray_ptr* coefficients) {
  const jpeg_decompress_struct& source = rewriter->decoder.info;
  jpeg_compress_struct* target = &rewriter->target;
  jpeg_create_compress(target);
  rewriter->output.init_destination = OnBegin;
  rewriter->output.empty_output_buffer = OnFull;
  rewriter->output.term_destination = OnDone;
  target->dest = &rewriter->output;
  jpeg_copy_critical_parameters(&rewriter->decoder.info, target);
  target->arith_code = FALSE;
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

const char* Run(Rewriter* rewriter, const uint8_t* jpeg, size_t size) {
  jpeg_decompress_struct* source = &rewriter->decoder.info;
  if (setjmp(rewriter->decoder.jump)) {
    return source->err->msg_code == JERR_OUT_OF_MEMORY ? "no_memory" : rewriter->reason;
  }
  rewriter->reason = "damaged";
  Open(&rewriter->decoder, jpeg, size);
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
  rewriter->reason = "unwritable";
  Write(rewriter, coefficients);
  return nullptr;
}

}  // namespace
}  // namespace tfpipe

const char* tfpipe_rewrite(const uint8_t* jpeg, size_t size, uint8_t** made,
                           size_t* made_size) {
  tfpipe::Rewriter rewriter;
  tfpipe::Reset(&rewriter.decoder, rewriter.message, nullptr);
  rewriter.target.err = &rewriter.decoder.errors;
  rewriter.target.client_data = &rewriter.decoder;
  rewriter.target.mem = nullptr;
  rewriter.output.bytes = nullptr;
  rewriter.output.size = 0;
  const char* reason = tfpipe::Run(&rewriter, jpeg, size);
  jpeg_destroy_compress(&rewriter.target);
  jpeg_destroy_decompress(&rewriter.decoder.info);
  if (reason != nullptr) {
    free(rewriter.output.bytes);
    return reason;
  }
  *made = rewriter.output.bytes;
  *made_size = rewriter.output.size;
  return nullptr;
}

void tfpipe_free(uint8_t* made) { free(made); }
