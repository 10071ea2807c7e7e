// Reads the markers of a JPEG with a single sequential Huffman scan (ITU T.81, B.2),
// and the codes of the scan without stuffed zeros (B.1.1.5).
//
// Every offset is checked against the end of the data. A JPEG of another table_class,
// or with anything unusual, is refused: libjpeg decides about such a JPEG.
#ifndef TFPIPE_NATIVE_SCAN_H_
#define TFPIPE_NATIVE_SCAN_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <vector>

#include "decoder.h"

namespace tfpipe {

constexpr int kBlockSize = 64;    // coefficients of a block
constexpr int kMaxSymbols = 256;  // of a table
constexpr int kMaxLength = 16;    // of a code
constexpr int kMaxMcuBlocks = 10;
constexpr int kMaxTables = 4;      // of a class: DC or AC
constexpr int kMaxComponents = 4;  // components
constexpr size_t kPadding = 512;   // more than the codes of a block: 64 * 31 bits

// Memory that grows, not initialized.
template <typename Value>
class GrowingBuffer {
 public:
  explicit GrowingBuffer(size_t size = 0) { Grow(size); }
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;
  ~GrowingBuffer() { free(values_); }

  Value* data() const { return values_; }
  size_t size() const { return size_; }
  void Grow(size_t size) {
    auto* values = static_cast<Value*>(realloc(values_, (size + 1) * sizeof(Value)));
    if (values == nullptr) throw std::bad_alloc();
    values_ = values;
    size_ = size;
  }

 private:
  Value* values_ = nullptr;
  size_t size_ = 0;
};

// A Huffman table as in a DHT segment (T.81, B.2.4.2).
struct Codes {
  size_t at = 0;  // offset of its 16 counts in the file
  int num_symbols = 0;
  uint8_t lengths[kMaxSymbols];  // of the codes, which never fall
  uint8_t symbols[kMaxSymbols];
};

// A component, and the numbers of its tables (T.81, B.2.2 and B.2.3).
struct Component {
  int id, across, down, dc, ac;
};

// The markers up to the codes of the only scan.
struct Header {
  size_t size = 0;  // in bytes
  int height = 0, width = 0, num_components = 0;
  int64_t interval = 0;  // MCUs between restart markers, or 0
  Component components[kMaxComponents];
  Codes tables[2][kMaxTables];  // DC, AC
};

// The blocks of an MCU, as the numbers of their tables (T.81, A.2.2 and A.2.3).
struct Layout {
  int64_t num_mcus = 0;
  int num_blocks = 0, dc[kMaxMcuBlocks], ac[kMaxMcuBlocks];
};

// The codes without stuffed zeros, and the end of each restart interval.
struct Scan {
  GrowingBuffer<uint8_t> bytes;
  std::vector<size_t> ends;
  size_t end = 0;  // of the scan in the file
};

inline int BigEndian16(const uint8_t* bytes) { return bytes[0] << 8 | bytes[1]; }

// Returns whether the lengths are those of a prefix code without a code of all ones
// (T.81, Annex C).
inline bool IsSound(const Codes& codes, bool dc) {
  int64_t used = 0;
  for (int i = 0; i < codes.num_symbols; ++i) {
    used += int64_t{1} << (kMaxLength - codes.lengths[i]);
    if (dc && codes.symbols[i] > 15) return false;
  }
  return codes.num_symbols > 0 && used < (1 << kMaxLength);
}

// The next three functions read the content of a segment into the header: DHT, SOF and
// SOS. Return whether the content is as in most JPEGs.

inline bool ReadTables(const uint8_t* jpeg, size_t at, size_t end, Header* header) {
  while (at < end) {
    if (end - at < 17) return false;
    const int table_class = jpeg[at] >> 4, index = jpeg[at] & 15;
    if (table_class > 1 || index >= kMaxTables) return false;
    Codes* codes = &header->tables[table_class][index];
    codes->at = ++at;
    codes->num_symbols = 0;
    for (int length = 1; length <= kMaxLength; ++length) {
      for (int i = jpeg[at + static_cast<size_t>(length) - 1]; i > 0; --i) {
        if (codes->num_symbols == kMaxSymbols) return false;
        codes->lengths[codes->num_symbols++] = static_cast<uint8_t>(length);
      }
    }
    at += 16;
    const size_t num_symbols = static_cast<size_t>(codes->num_symbols);
    if (end - at < num_symbols) return false;
    memcpy(codes->symbols, jpeg + at, num_symbols);
    at += num_symbols;
  }
  return true;
}

inline bool ReadFrame(const uint8_t* content, size_t size, Header* header) {
  if (header->num_components != 0 || size < 6 || content[0] != 8) return false;
  header->height = BigEndian16(content + 1);
  header->width = BigEndian16(content + 3);
  const int num_components = content[5];
  if (num_components < 1 || num_components > kMaxComponents) return false;
  if (size != 6 + 3 * static_cast<size_t>(num_components)) return false;
  for (int i = 0; i < num_components; ++i) {
    const uint8_t* component = content + 6 + 3 * i;
    const int across = component[1] >> 4, down = component[1] & 15;
    if (across < 1 || across > 4 || down < 1 || down > 4) return false;
    header->components[i] = {component[0], across, down, 0, 0};
  }
  header->num_components = num_components;
  const int64_t values = int64_t{header->height} * header->width * num_components;
  return values > 0 && values < kMaxImageValues;
}

inline bool ReadScan(const uint8_t* content, size_t size, Header* header) {
  const size_t num_components = static_cast<size_t>(header->num_components);
  if (num_components == 0 || size != 4 + 2 * num_components ||
      content[0] != num_components) {
    return false;
  }
  for (size_t i = 0; i < num_components; ++i) {
    Component* component = &header->components[i];
    component->dc = content[2 + 2 * i] >> 4;
    component->ac = content[2 + 2 * i] & 15;
    if (content[1 + 2 * i] != component->id) return false;
    if (component->dc >= kMaxTables || component->ac >= kMaxTables) return false;
    if (!IsSound(header->tables[0][component->dc], true)) return false;
    if (!IsSound(header->tables[1][component->ac], false)) return false;
  }
  const uint8_t* last = content + 1 + 2 * num_components;
  return last[0] == 0 && last[1] == kBlockSize - 1 && last[2] == 0;
}

// Reads the markers up to the scan (T.81, Table B.1). Returns whether the image has a
// single sequential Huffman scan.
inline bool ReadHeader(const uint8_t* jpeg, size_t size, Header* header) {
  if (size < 4 || jpeg[0] != 0xff || jpeg[1] != 0xd8) return false;
  size_t at = 2;
  while (size - at >= 4 && jpeg[at] == 0xff) {
    const int marker = jpeg[at + 1];
    const size_t begin = at + 4,
                 length = static_cast<size_t>(BigEndian16(jpeg + at + 2));
    if (length < 2 || size - at - 2 < length) return false;
    const uint8_t* content = jpeg + begin;
    at += 2 + length;
    if (marker == 0xda) {
      header->size = at;
      return ReadScan(content, length - 2, header);
    }
    bool plain = marker == 0xdb || marker == 0xfe || (marker >> 4) == 0xe;
    if (marker == 0xc4) plain = ReadTables(jpeg, begin, at, header);
    if (marker == 0xc0 || marker == 0xc1)
      plain = ReadFrame(content, length - 2, header);
    if (marker == 0xdd && length == 4) {
      plain = true;
      header->interval = BigEndian16(content);
    }
    if (!plain) return false;
  }
  return false;
}

inline int64_t CountOf(int64_t pixels, int64_t side) {
  return (pixels + side - 1) / side;
}

// Fills the layout. Returns whether an MCU has few enough blocks (T.81, B.2.3).
inline bool FillLayout(const Header& header, Layout* layout) {
  int across = 1, down = 1;
  // The only component of a scan has MCUs of single blocks (T.81, A.2.2).
  const bool single = header.num_components == 1;
  for (int i = 0; i < header.num_components; ++i) {
    const Component& component = header.components[i];
    const int num_blocks = single ? 1 : component.across * component.down;
    if (layout->num_blocks + num_blocks > kMaxMcuBlocks) return false;
    for (int block = 0; block < num_blocks; ++block) {
      layout->dc[layout->num_blocks] = component.dc;
      layout->ac[layout->num_blocks++] = component.ac;
    }
    if (single) continue;
    across = std::max(across, component.across);
    down = std::max(down, component.down);
  }
  layout->num_mcus =
      CountOf(header.width, 8 * across) * CountOf(header.height, 8 * down);
  return true;
}

// Reads the codes, without stuffed zeros. Returns whether the restart markers are in
// order (T.81, B.2.1), and EOI ends the scan.
inline bool ReadBytes(const uint8_t* jpeg, size_t size, const Header& header,
                      Scan* scan) {
  scan->bytes.Grow(size - header.size + kPadding);
  uint8_t* to = scan->bytes.data();
  const uint8_t *from = jpeg + header.size, *end = jpeg + size;
  for (;;) {
    const auto left = static_cast<size_t>(end - from);
    const void* byte = left == 0 ? nullptr : memchr(from, 0xff, left);
    const auto* marker_at = static_cast<const uint8_t*>(byte);
    if (marker_at == nullptr || end - marker_at < 2) return false;
    const auto length = static_cast<size_t>(marker_at - from);
    memcpy(to, from, length);
    to += length;
    from = marker_at + 2;
    const int marker = marker_at[1];
    if (marker == 0) {
      *to++ = 0xff;
      continue;
    }
    const size_t restart = scan->ends.size();
    scan->ends.push_back(static_cast<size_t>(to - scan->bytes.data()));
    scan->end = static_cast<size_t>(marker_at - jpeg);
    if (marker == 0xd9) break;
    if (marker != static_cast<int>(0xd0 + (restart & 7))) return false;
  }
  memset(to, 0, kPadding);
  return true;
}

}  // namespace tfpipe

#endif
