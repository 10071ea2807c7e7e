// Makes the table of entry points of a JPEG: see entry_points.h.
#include "entry_points.h"

#include <algorithm>
#include <vector>

#include "decoder.h"
#include "huffman.h"
#include "rewrite.h"

namespace tfpipe {
namespace {

// A table takes about 6 bytes for each entry point.
constexpr size_t kDefaultDistance = 256;  // bytes of the JPEG between two entry points
constexpr uint32_t kMaxStep = 0xffff;

using Bytes = std::vector<uint8_t>;

// Appends numbers of any width, the lowest bits first.
class Packer {
 public:
  explicit Packer(Bytes* bytes) : bytes_(bytes) {}

  void Put(uint64_t value, int count) {
    for (int i = 0; i < count; ++i, ++used_) {
      if (used_ % 8 == 0) bytes_->push_back(0);
      const auto bit = static_cast<unsigned>(value >> i & 1);
      bytes_->back() = static_cast<uint8_t>(bytes_->back() | bit << used_ % 8);
    }
  }

 private:
  Bytes* bytes_;
  size_t used_ = 0;
};

int BitsOf(uint64_t value) { return value == 0 ? 0 : 64 - __builtin_clzll(value); }

// Starts the decoder. Returns null, or why there are no entry points. libjpeg may jump
// out of the function, so no object in it has a destructor.
const char* Start(Decoder* decoder, const uint8_t* jpeg, size_t size) {
  if (setjmp(decoder->jump)) {
    return decoder->errors.msg_code == JERR_OUT_OF_MEMORY ? "no_memory" : "damaged";
  }
  if (size >= kMaxTableJpeg) return "too_large";
  Open(decoder, jpeg, size);
  jpeg_decompress_struct* info = &decoder->info;
  jpeg_read_header(info, TRUE);
  if (info->data_precision != 8) return "precision";
  const bool together = info->comps_in_scan == info->num_components;
  if (info->progressive_mode || info->arith_code || !together) return "not_baseline";
  if (info->restart_interval != 0) return "restart_markers";
  jpeg_start_decompress(info);
  // A lossless image has no blocks of 8 x 8.
  if (info->min_DCT_scaled_size != DCTSIZE || !IsPlain(*info)) return "not_baseline";
  Begin(*info, 0, 0, nullptr, decoder->huffman);
  return nullptr;
}

// Reads all blocks, and makes an entry point at every `step`-th MCU. Returns null, or
// why there are none.
const char* Collect(Huffman* h, const jpeg_decompress_struct& info, uint32_t num_mcus,
                    uint32_t step, std::vector<EntryPoint>* points) {
  Notes notes = {step, step, {}};
  h->notes = &notes;
  const bool sound = SkipMcus(h, info, num_mcus);
  h->notes = nullptr;
  if (!sound) return "damaged";
  notes.points.resize((num_mcus - 1) / step);  // none after the last MCU
  points->swap(notes.points);
  const uint8_t* marker = FindMarker(h->begin + (BitOffset(*h) + 7) / 8, h->end);
  return marker != nullptr && marker[1] == JPEG_EOI ? nullptr : "damaged";
}

// Returns the table, with zeros for the digest of the JPEG, and without its own digest.
Bytes Encode(const std::vector<EntryPoint>& points, uint32_t num_mcus, uint32_t step,
             int num_components) {
  Bytes table;
  Packer packer(&table);
  int offset_bits = 0;
  for (const EntryPoint& point : points)
    offset_bits = std::max(offset_bits, BitsOf(point.bit_offset));
  packer.Put(kTableVersion, 8);
  packer.Put(static_cast<unsigned>(num_components), 8);
  packer.Put(step, 16);
  packer.Put(num_mcus, 32);
  packer.Put(0, 64);
  packer.Put(0, 32);
  packer.Put(static_cast<unsigned>(offset_bits), 8);
  int least[kMaxTableComponents] = {}, bits[kMaxTableComponents] = {};
  for (int i = 0; i < num_components; ++i) {
    const auto less = [i](const EntryPoint& a, const EntryPoint& b) {
      return a.dc[i] < b.dc[i];
    };
    if (!points.empty()) {
      const auto ends = std::minmax_element(points.begin(), points.end(), less);
      least[i] = ends.first->dc[i];
      bits[i] = BitsOf(static_cast<unsigned>(ends.second->dc[i] - least[i]));
    }
    packer.Put(static_cast<unsigned>(least[i]), 16);
    packer.Put(static_cast<unsigned>(bits[i]), 8);
  }
  for (const EntryPoint& point : points) {
    packer.Put(point.bit_offset, offset_bits);
    for (int i = 0; i < num_components; ++i)
      packer.Put(static_cast<unsigned>(point.dc[i] - least[i]), bits[i]);
  }
  return table;
}

void PutLowFirst(uint64_t value, size_t count, uint8_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}

const char* Find(Decoder* decoder, const uint8_t* jpeg, size_t size, size_t distance,
                 Bytes* table) {
  if (const char* reason = Start(decoder, jpeg, size)) return reason;
  const jpeg_decompress_struct& info = decoder->info;
  const uint64_t num_mcus = uint64_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
  const auto scan =
      static_cast<size_t>(decoder->huffman->end - decoder->huffman->begin);
  if (num_mcus > UINT32_MAX || num_mcus > 8 * scan) return "damaged";
  const uint64_t step =
      num_mcus * (distance > 0 ? distance : kDefaultDistance) / (scan + 1);
  const auto kept =
      static_cast<uint32_t>(std::min<uint64_t>(std::max<uint64_t>(step, 1), kMaxStep));
  std::vector<EntryPoint> points;
  const auto count = static_cast<uint32_t>(num_mcus);
  const char* reason = Collect(decoder->huffman, info, count, kept, &points);
  if (reason != nullptr) return reason;
  *table = Encode(points, count, kept, info.comps_in_scan);
  PutLowFirst(size, 4, table->data() + 8);
  PutLowFirst(Xxh64(jpeg, size), 8, table->data() + 12);
  const uint64_t digest = Xxh64(table->data(), table->size());
  table->resize(table->size() + kTableEnd);
  PutLowFirst(digest, kTableEnd, table->data() + table->size() - kTableEnd);
  return nullptr;
}

}  // namespace
}  // namespace tfpipe

const char* tfpipe_find_entry_points(const uint8_t* jpeg, size_t size, size_t distance,
                                     uint8_t** result, size_t* result_size) {
  static thread_local tfpipe::Huffman huffman;
  tfpipe::Decoder decoder;
  char message[tfpipe::kMessageLength];
  tfpipe::Reset(&decoder, message, &huffman);
  const char* reason;
  tfpipe::Bytes table;
  try {
    reason = tfpipe::Find(&decoder, jpeg, size, distance, &table);
  } catch (const std::bad_alloc&) {
    reason = "no_memory";
  }
  jpeg_destroy_decompress(&decoder.info);
  if (reason != nullptr) return reason;
  *result_size = table.size();
  *result = static_cast<uint8_t*>(malloc(table.size()));
  if (*result == nullptr) return "no_memory";
  memcpy(*result, table.data(), table.size());
  return nullptr;
}
