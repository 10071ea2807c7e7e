// Reads the coefficients of a JPEG and writes them again, for rewrite.cc and turn.cc.
// This is plain C++ without TensorFlow, for the converters.
#ifndef TFPIPE_NATIVE_TRANSCODER_H_
#define TFPIPE_NATIVE_TRANSCODER_H_

#include <stdlib.h>

#include "decoder.h"

namespace tfpipe {

// Memory that grows, and that an error of libjpeg does not free.
struct Output : jpeg_destination_mgr {
  uint8_t* bytes;
  size_t size;
};

// Decoder and encoder. An error of either ends in the decoder's jump.
struct Transcoder {
  Decoder decoder;
  jpeg_compress_struct target;
  Output output;
  char message[kMessageLength];
  const char* reason;  // the word to return if libjpeg fails now
};

inline void Grow(j_compress_ptr info, size_t size) {
  Output* output = static_cast<Output*>(info->dest);
  const size_t used = output->size;
  uint8_t* bytes = static_cast<uint8_t*>(realloc(output->bytes, size));
  if (bytes == nullptr) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
  output->bytes = bytes;
  output->size = size;
  output->next_output_byte = bytes + used;
  output->free_in_buffer = size - used;
}

inline void OnBegin(j_compress_ptr info) { Grow(info, 1 << 16); }

// libjpeg calls OnFull when the whole buffer is full, whatever free_in_buffer says.
inline boolean OnFull(j_compress_ptr info) {
  Grow(info, 2 * static_cast<Output*>(info->dest)->size);
  return TRUE;
}

inline void OnDone(j_compress_ptr info) {
  static_cast<Output*>(info->dest)->size -= info->dest->free_in_buffer;
}

// Returns whether a progressive image lacks the last bits of a coefficient (T.81, A.4
// and Annex G). A decoder would smooth such blocks.
inline bool IsIncomplete(const jpeg_decompress_struct& source) {
  if (!source.progressive_mode) return false;
  for (int i = 0; i < source.num_components; ++i) {
    for (int k = 0; k < DCTSIZE2; ++k) {
      if (source.coef_bits[i][k] != 0) return true;
    }
  }
  return false;
}

// Returns from the header why an image must stay unchanged, or null.
inline const char* Refuse(const jpeg_decompress_struct& source) {
  const int64_t height = source.image_height, width = source.image_width;
  if (source.data_precision != 8) return "precision";
  if (source.arith_code) return "arithmetic";
  if (height * width * source.num_components >= kMaxImageValues)
    return "too_many_pixels";
  return nullptr;
}

constexpr unsigned kMaxMarkerLength = 0xffff;

// Makes the decoder keep the metadata.
inline void SaveMarkers(jpeg_decompress_struct* source) {
  for (int i = 0; i < 16; ++i) {
    jpeg_save_markers(source, JPEG_APP0 + i, kMaxMarkerLength);
  }
  jpeg_save_markers(source, JPEG_COM, kMaxMarkerLength);
}

inline int CountMarkers(const jpeg_decompress_struct& source) {
  int count = 0;
  for (auto* marker = source.marker_list; marker; marker = marker->next) ++count;
  return count;
}

// Prepares the encoder to write a single sequential scan like the source.
inline void Prepare(Transcoder* transcoder) {
  jpeg_compress_struct* target = &transcoder->target;
  jpeg_create_compress(target);
  transcoder->output.init_destination = OnBegin;
  transcoder->output.empty_output_buffer = OnFull;
  transcoder->output.term_destination = OnDone;
  target->dest = &transcoder->output;
  jpeg_copy_critical_parameters(&transcoder->decoder.info, target);
  target->arith_code = FALSE;
}

// Writes the image with the saved metadata and with fitted Huffman tables.
inline void WriteWithMarkers(Transcoder* transcoder, jvirt_barray_ptr* coefficients) {
  const jpeg_decompress_struct& source = transcoder->decoder.info;
  jpeg_compress_struct* target = &transcoder->target;
  target->optimize_coding = TRUE;
  // The source's markers are copied byte for byte: decoders recognize colors by them.
  target->write_JFIF_header = FALSE;
  target->write_Adobe_marker = FALSE;
  jpeg_write_coefficients(target, coefficients);
  for (auto* marker = source.marker_list; marker; marker = marker->next) {
    jpeg_write_marker(target, marker->marker, marker->data, marker->data_length);
  }
  jpeg_finish_compress(target);
}

template <typename Steps>
const char* Guarded(Transcoder* transcoder, const uint8_t* jpeg, size_t size,
                    Steps steps) {
  if (setjmp(transcoder->decoder.jump)) {
    const int code = transcoder->decoder.errors.msg_code;
    return code == JERR_OUT_OF_MEMORY ? "no_memory" : transcoder->reason;
  }
  transcoder->reason = "damaged";
  Open(&transcoder->decoder, jpeg, size);
  return steps(transcoder);
}

// Rewritten writes an image with a restart marker after each `restart_rows` rows of
// MCUs, 0 for none. Mirrored mirrors an image and keeps its metadata and restart
// intervals. Both return the words of rewrite.h.
const char* Rewritten(const uint8_t* jpeg, size_t size, int restart_rows,
                      uint8_t** result, size_t* result_size);
const char* Mirrored(const uint8_t* jpeg, size_t size, uint8_t** result,
                     size_t* result_size);

// Runs `steps`, from the header to the end of the encoder, and frees all memory but the
// result. `steps` returns null, or the word for the reason of a failure, and must hold
// no object with a destructor.
template <typename Steps>
const char* Transcode(const uint8_t* jpeg, size_t size, Steps steps, uint8_t** result,
                      size_t* result_size) {
  Transcoder transcoder;
  Reset(&transcoder.decoder, transcoder.message, nullptr);
  transcoder.target.err = &transcoder.decoder.errors;
  transcoder.target.client_data = &transcoder.decoder;
  transcoder.target.mem = nullptr;
  transcoder.output.bytes = nullptr;
  transcoder.output.size = 0;
  const char* reason = Guarded(&transcoder, jpeg, size, steps);
  jpeg_destroy_compress(&transcoder.target);
  jpeg_destroy_decompress(&transcoder.decoder.info);
  if (reason != nullptr) {
    free(transcoder.output.bytes);
    return reason;
  }
  *result = transcoder.output.bytes;
  *result_size = transcoder.output.size;
  return nullptr;
}

}  // namespace tfpipe

#endif
