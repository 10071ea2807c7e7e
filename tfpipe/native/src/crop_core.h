// Turns JPEG bytes and a crop box into resized pixels, in one pass over the rows.
//
// This file uses libjpeg-turbo and not TensorFlow: crop.cc makes an op of it, fuzz.cc
// feeds it damaged images. The pixels equal those of the stock ops of tfpipe.ops.crop
// (DecodeAndCropJpeg, ResizeBilinear, QuantizeV2): the same arithmetic in the same
// order. Only another release of libjpeg may change a pixel.
#ifndef TFPIPE_NATIVE_CROP_CORE_H_
#define TFPIPE_NATIVE_CROP_CORE_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "decoder.h"
#include "huffman.h"
#include "mcu_rows.h"
#include "resize.h"

namespace tfpipe {

struct CropBox {
  int top, left, height, width;  // pixels of the whole image
};

// The settings of a call. A value becomes value * scale + offset, per channel in the
// order of the result; uint8 values are only rounded.
struct Format {
  int height, width;  // of the result
  bool fast;          // decode at 1/2, 1/4 or 1/8 where that still covers the result
  bool planar;        // channels first
  bool bgr;
  bool plain;  // libjpeg's own Huffman decoder in a new object, for fuzz.cc
  Pixel pixel;
  float scale[3], offset[3];
};

// libjpeg-turbo writes rows aligned to 32 bytes past the caches. To read such rows back
// from memory would take an eighth of the whole time, so rows are not aligned.
constexpr int kLineOffset = 8;

// The decoder of a thread.
struct KeptDecoder : Decoder {
  KeptDecoder() = default;
  KeptDecoder(const KeptDecoder&) = delete;
  ~KeptDecoder() { jpeg_destroy_decompress(&info); }
};

// Memory of a thread, kept from image to image: the size of a few rows.
struct Scratch {
  KeptDecoder decoder;
  std::vector<Step> rows;
  Across across;
  std::vector<uint8_t> line;
  std::vector<float> lower, upper, mixed, scale, offset;
  RowReader reader;
};

// Fails where the stock op fails. The message names the data or the crop box.
inline void Check(Decoder* decoder, const CropBox& box) {
  const jpeg_decompress_struct& info = decoder->info;
  const int64_t height = info.image_height, width = info.image_width;
  if (info.data_precision != 8) {
    snprintf(decoder->message, kMessageLength,
             "The JPEG data must have 8 bits a value, got %d.", info.data_precision);
    Fail(decoder);
  }
  if (height * width * info.num_components >= kMaxImageValues) {
    snprintf(decoder->message, kMessageLength,
             "The JPEG image must have less than 2^29 values, got %lld x %lld x %d.",
             static_cast<long long>(height), static_cast<long long>(width),
             info.num_components);
    Fail(decoder);
  }
  // Subtraction instead of addition: a sum might overflow.
  if (box.top < 0 || box.left < 0 || box.height < 1 || box.width < 1 ||
      box.top > height - box.height || box.left > width - box.width) {
    snprintf(
        decoder->message, kMessageLength,
        "The crop box must be within the JPEG image of %lld x %lld pixels, got top "
        "%d, left %d, height %d, width %d.",
        static_cast<long long>(height), static_cast<long long>(width), box.top,
        box.left, box.height, box.width);
    Fail(decoder);
  }
}

// Returns the smallest box of the scaled image that covers the crop box, as the
// function scaled_crop_box of the stock path does.
inline CropBox Scaled(const CropBox& box, int ratio) {
  const int top = box.top / ratio, left = box.left / ratio;
  return {top, left, (box.top + box.height + ratio - 1) / ratio - top,
          (box.left + box.width + ratio - 1) / ratio - left};
}

// Starts decoding. Afterwards libjpeg gives the rows of the crop box. Returns the
// column of the first wanted pixel in such a row.
inline int Start(Decoder* decoder, const Format& format, const EntryPoints* points,
                 CropBox* box, Scratch* scratch) {
  jpeg_decompress_struct* info = &decoder->info;
  const int times = std::min(box->height / format.height, box->width / format.width);
  int ratio = 1;
  while (format.fast && ratio < 8 && 2 * ratio <= times) ratio *= 2;
  if (ratio > 1) *box = Scaled(*box, ratio);
  const bool inks =
      info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
  info->out_color_space = inks ? JCS_CMYK : format.bgr ? JCS_EXT_BGRX : JCS_EXT_RGBX;
  info->scale_num = 1;
  info->scale_denom = ratio;
  info->dct_method = JDCT_ISLOW;
  info->do_fancy_upsampling = ratio == 1;
  jpeg_start_decompress(info);
  JDIMENSION left = box->left, width = box->width;
  jpeg_crop_scanline(info, &left, &width);
  if (decoder->huffman != nullptr && IsPlain(*info)) {
    // Pixels of an MCU, as jpeg_crop_scanline counts.
    const bool is_gray = info->num_components == 1;
    const int side = info->min_DCT_scaled_size,
              mcu_width = side * (is_gray ? 1 : info->max_h_samp_factor),
              mcu_height = side * (is_gray ? 1 : info->max_v_samp_factor);
    RowReader* reader = &scratch->reader;
    Begin(*info, static_cast<int>(left) / mcu_width,
          static_cast<int>(left + width - 1) / mcu_width, points, reader);
    const int last_row = (box->top + box->height - 1) / mcu_height;
    BeginTwoRows(*info, static_cast<unsigned>(last_row), reader);
    TakeOver(info);
  }
  const JDIMENSION top = box->top;
  if (top > 0 && jpeg_skip_scanlines(info, top) != top) OnEnd(info);
  return box->left - static_cast<int>(left);
}

// Converts inks to colors, with TensorFlow's arithmetic.
inline void InksToColors(bool inverted, bool bgr, int width, uint8_t* line) {
  for (int x = 0; x < width; ++x) {
    int inks[4];
    for (int i = 0; i < 4; ++i) {
      inks[i] = inverted ? line[4 * x + i] : 255 - line[4 * x + i];
    }
    for (int i = 0; i < 3; ++i) {
      line[4 * x + (bgr ? 2 - i : i)] = static_cast<uint8_t>(inks[3] * inks[i] / 255);
    }
  }
}

// Writes row y of the result, in all planes.
inline void WriteRow(const Format& format, int y, const Scratch& scratch,
                     void* pixels) {
  const Step& step = scratch.rows[y];
  const auto& lower = step.lower == step.upper ? scratch.upper : scratch.lower;
  const int num_planes = format.planar ? 3 : 1;
  const int count = 3 * format.width / num_planes;
  for (int plane = 0; plane < num_planes; ++plane) {
    const int begin = plane * count;
    PutValues(format.pixel,
              {&lower[begin], &scratch.upper[begin], &scratch.scale[begin],
               &scratch.offset[begin], step.fraction, count},
              pixels, (int64_t{plane} * format.height + y) * count);
  }
}

// Sizes the buffers for a crop box, and repeats the scales along a row.
inline void Prepare(const Format& format, const CropBox& box, bool flip,
                    size_t line_bytes, Scratch* scratch) {
  const int width = format.width;
  FillSteps(box.height, format.height, &scratch->rows);
  FillColumns(box.width, width, flip, format.pixel, &scratch->across);
  line_bytes += kLineOffset + kDepth;
  if (scratch->line.size() < line_bytes) scratch->line.resize(line_bytes);
  for (auto* row : {&scratch->lower, &scratch->upper, &scratch->mixed})
    row->resize(3 * width + kDepth);
  scratch->scale.resize(3 * width);
  scratch->offset.resize(3 * width);
  for (int x = 0; x < width; ++x) {
    for (int channel = 0; channel < 3; ++channel) {
      const int i = format.planar ? channel * width + x : 3 * x + channel;
      scratch->scale[i] = format.scale[channel];
      scratch->offset[i] = format.offset[channel];
    }
  }
}

// Decodes the next row of the crop box. Resizes a wanted row into `upper`, and the row
// before becomes `lower`.
inline void ReadRow(Decoder* decoder, const Format& format, const CropBox& box,
                    int begin, bool wanted, Scratch* scratch) {
  jpeg_decompress_struct* info = &decoder->info;
  JSAMPROW line = scratch->line.data() + kLineOffset;
  if (jpeg_read_scanlines(info, &line, 1) != 1) OnEnd(info);
  if (!wanted) return;
  line += begin * info->output_components;
  if (info->out_color_space == JCS_CMYK)
    InksToColors(info->saw_Adobe_marker, format.bgr, box.width, line);
  scratch->lower.swap(scratch->upper);
  const int width = format.width;
  float* row = format.planar ? scratch->mixed.data() : scratch->upper.data();
  Resize(line, box.width, row, &scratch->across);
  for (int i = 0; format.planar && i < 3 * width; ++i)
    scratch->upper[i % 3 * width + i / 3] = row[i];
}

inline void Decode(Decoder* decoder, const Format& format, const EntryPoints* points,
                   CropBox box, bool flip, Scratch* scratch, void* pixels) {
  const int begin = Start(decoder, format, points, &box, scratch);
  const jpeg_decompress_struct& info = decoder->info;
  Prepare(format, box, flip, size_t{info.output_width} * info.output_components,
          scratch);
  int num_read = 0;
  for (int y = 0; y < format.height; ++y) {
    const Step step = scratch->rows[y];
    for (; num_read <= step.upper; ++num_read)
      ReadRow(decoder, format, box, begin, num_read >= step.lower, scratch);
    WriteRow(format, y, *scratch, pixels);
  }
  // The stock op also decodes the remaining rows of the crop box. The end of the data
  // is needed only if the box touches the bottom of the image. Rows below the box are
  // not read.
  for (; num_read < box.height; ++num_read)
    ReadRow(decoder, format, box, begin, false, scratch);
  const bool ours = info.entropy->decode_mcu == OnMcu;
  if (ours && !End(&scratch->reader, info)) longjmp(decoder->jump, kOdd);
  if (info.output_scanline < info.output_height) return;
  if (ours) {
    const uint8_t* next = NextByte(scratch->reader);
    decoder->source.next_input_byte = next;
    decoder->source.bytes_in_buffer = scratch->reader.end - next;
  }
  jpeg_finish_decompress(&decoder->info);
}

// The bytes of an image, and of its table of entry points if `table_size` is not 0.
struct Source {
  const uint8_t* jpeg;
  size_t size;
  const uint8_t* table;
  size_t table_size;
};

// Decodes the crop box of an image into `pixels`: height x width x 3 values of the
// format. A damaged table, or a table of another image, changes nothing. Returns
// whether the image was decoded; otherwise `message` [kMessageLength] has the reason.
inline bool Crop(const Source& source, const CropBox& box, bool flip,
                 const Format& format, void* pixels, char* message) {
  static thread_local Scratch scratch;
  EntryPoints points;
  const bool has_points = source.table_size > 0 && !format.plain &&
                          ReadEntryPoints(source.table, source.table_size, source.jpeg,
                                          source.size, &points);
  Decoder* decoder = &scratch.decoder;
  if (format.plain) jpeg_destroy_decompress(&decoder->info);
  Reset(decoder, message, format.plain ? nullptr : &scratch.reader);
  switch (setjmp(decoder->jump)) {
    case kFailed: jpeg_destroy_decompress(&decoder->info); return false;
    case kOdd:  // again, with libjpeg's own Huffman decoder
      jpeg_destroy_decompress(&decoder->info);
      decoder->huffman = nullptr;
      break;
    default: break;
  }
  Open(decoder, source.jpeg, source.size);
  jpeg_read_header(&decoder->info, TRUE);
  Check(decoder, box);
  Decode(decoder, format, has_points ? &points : nullptr, box, flip, &scratch, pixels);
  Close(decoder);
  return true;
}

}  // namespace tfpipe

#endif
