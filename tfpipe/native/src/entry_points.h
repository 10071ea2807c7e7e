// Entry points of a JPEG: a table of bits in its scan where a decoder may begin. The
// crop op thus reaches the crop box without reading the codes before the box. The JPEG
// does not change.
//
// entry_points.cc makes tables, huffman.h uses them. A table, with the lowest byte of a
// number first:
//
//   bytes   content
//   1       version, 1
//   1       components of the scan, 1 to 4
//   2       step: MCUs from one entry point to the next, at least 1
//   4       MCUs of the image
//   4       bytes of the JPEG, less than 2^29
//   8       XXH64 of the JPEG, with seed 0
//   1       bits of a bit offset, at most 32
//   3 each  for each component: its smallest DC value (2 bytes), and the bits of a DC
//           value above the smallest (1 byte, at most 16)
//   packed  the entry points, without gaps, the lowest bits first; zeros end the byte
//   4       lower half of the XXH64 of all bytes before
//
// Entry point i stands before MCU (i + 1) * step. It holds a bit offset, and the last
// DC value of each component (PRED in T.81, F.2.1.3.1). The offset counts from the
// first bit of the scan, stuffed zeros included.
//
// The digests detect a damaged table, and a table of another or a damaged JPEG. Even a
// forged table cannot make the decoder leave the bytes of the JPEG.
#ifndef TFPIPE_NATIVE_ENTRY_POINTS_H_
#define TFPIPE_NATIVE_ENTRY_POINTS_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace tfpipe {

constexpr int kTableVersion = 1;
constexpr int kMaxTableComponents = 4;
constexpr size_t kTableHead = 21, kTablePart = 3, kTableEnd = 4;  // bytes
constexpr size_t kMaxTableJpeg = size_t{1}
                                 << 29;  // bytes, so that a bit offset has 32 bits

// Reads a number of up to 8 bytes, the lowest byte first.
inline uint64_t LowFirst(const uint8_t* bytes, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size && i < 8; ++i) number |= uint64_t{bytes[i]} << (8 * i);
  return number;
}

inline uint64_t Load64(const uint8_t* bytes) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t number;
  memcpy(&number, bytes, 8);
  return number;
#else
  return LowFirst(bytes, 8);
#endif
}

constexpr uint64_t kXxh[5] = {0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f,
                              0x165667b19e3779f9, 0x85ebca77c2b2ae63,
                              0x27d4eb2f165667c5};

inline uint64_t Rotated(uint64_t bits, int count) {
  return bits << count | bits >> (64 - count);
}

inline uint64_t XxhRound(uint64_t lane, uint64_t word) {
  return Rotated(lane + word * kXxh[1], 31) * kXxh[0];
}

// XXH64 with seed 0, as the specification of xxHash describes it: 10 to 20 bytes a
// nanosecond, without special instructions.
inline uint64_t Xxh64(const uint8_t* bytes, size_t size) {
  const uint8_t* const end = bytes + size;
  uint64_t hash = kXxh[4];
  if (size >= 32) {
    uint64_t lanes[4] = {kXxh[0] + kXxh[1], kXxh[1], 0, 0 - kXxh[0]};
    for (; end - bytes >= 32; bytes += 32) {
      for (int i = 0; i < 4; ++i) lanes[i] = XxhRound(lanes[i], Load64(bytes + 8 * i));
    }
    hash = Rotated(lanes[0], 1) + Rotated(lanes[1], 7) + Rotated(lanes[2], 12) +
           Rotated(lanes[3], 18);
    for (const uint64_t lane : lanes) {
      hash = (hash ^ XxhRound(0, lane)) * kXxh[0] + kXxh[3];
    }
  }
  hash += size;
  for (; end - bytes >= 8; bytes += 8) {
    hash = Rotated(hash ^ XxhRound(0, Load64(bytes)), 27) * kXxh[0] + kXxh[3];
  }
  if (end - bytes >= 4) {
    hash = Rotated(hash ^ LowFirst(bytes, 4) * kXxh[0], 23) * kXxh[1] + kXxh[2];
    bytes += 4;
  }
  for (; bytes < end; ++bytes) hash = Rotated(hash ^ *bytes * kXxh[4], 11) * kXxh[0];
  hash = (hash ^ hash >> 33) * kXxh[1];
  hash = (hash ^ hash >> 29) * kXxh[2];
  return hash ^ hash >> 32;
}

// A checked table; `packed` points into the caller's bytes.
struct EntryPoints {
  const uint8_t *packed, *packed_end;
  uint32_t step, num_mcus, num_points;
  int num_components, point_bits, offset_bits, dc_least[kMaxTableComponents],
      dc_bits[kMaxTableComponents];
};

// A position in the scan, and the last DC value of each component.
struct EntryPoint {
  uint64_t bit_offset;
  int dc[kMaxTableComponents];
};

inline uint64_t Unpack(const EntryPoints& points, uint64_t at, int count) {
  const uint8_t* from = points.packed + (at >> 3);
  const auto left = static_cast<size_t>(points.packed_end - from);
  const uint64_t bits = left >= 8 ? Load64(from) : LowFirst(from, left);
  return (bits >> (at & 7)) & ((uint64_t{1} << count) - 1);
}

inline EntryPoint PointAt(const EntryPoints& points, uint32_t index) {
  uint64_t at = uint64_t{index} * static_cast<unsigned>(points.point_bits);
  EntryPoint point = {Unpack(points, at, points.offset_bits), {}};
  at += static_cast<unsigned>(points.offset_bits);
  for (int i = 0; i < points.num_components; ++i) {
    const auto above = static_cast<int>(Unpack(points, at, points.dc_bits[i]));
    point.dc[i] = points.dc_least[i] + above;
    at += static_cast<unsigned>(points.dc_bits[i]);
  }
  return point;
}

// Reads a table. Returns whether the table is sound and of the JPEG.
inline bool ReadEntryPoints(const uint8_t* table, size_t table_size,
                            const uint8_t* jpeg, size_t jpeg_size,
                            EntryPoints* points) {
  if (table_size < kTableHead + kTableEnd || table[0] != kTableVersion) return false;
  const int num_components = table[1];
  const size_t head = kTableHead + kTablePart * static_cast<size_t>(num_components);
  if (num_components < 1 || num_components > kMaxTableComponents ||
      table_size < head + kTableEnd) {
    return false;
  }
  points->num_components = num_components;
  points->step = static_cast<uint32_t>(LowFirst(table + 2, 2));
  points->num_mcus = static_cast<uint32_t>(LowFirst(table + 4, 4));
  if (points->step == 0 || points->num_mcus == 0) return false;
  points->num_points = (points->num_mcus - 1) / points->step;
  points->offset_bits = points->point_bits = table[20];
  if (points->offset_bits > 32) return false;
  for (int i = 0; i < num_components; ++i) {
    const uint8_t* component = table + kTableHead + kTablePart * static_cast<size_t>(i);
    points->dc_least[i] = static_cast<int16_t>(LowFirst(component, 2));
    points->dc_bits[i] = component[2];
    if (component[2] > 16) return false;
    points->point_bits += component[2];
  }
  const uint64_t bits =
      uint64_t{points->num_points} * static_cast<unsigned>(points->point_bits);
  if (table_size - head - kTableEnd != (bits + 7) / 8) return false;
  points->packed = table + head;
  points->packed_end = table + table_size - kTableEnd;
  return LowFirst(points->packed_end, 4) ==
             (Xxh64(table, table_size - kTableEnd) & 0xffffffff) &&
         LowFirst(table + 8, 4) == jpeg_size &&
         LowFirst(table + 12, 8) == Xxh64(jpeg, jpeg_size);
}

}  // namespace tfpipe

#endif
