// Writes the same coefficients with other Huffman codes.
//
// The lengths of the new codes fit the counts of the symbols, multiplied by random
// factors. The factors are as large as the size of the image allows. Codes of equal
// length are shuffled. A code therefore has other bits in every copy and begins at
// another bit: copies have no long runs of bytes in common.
//
// This file reads and writes JPEGs with one sequential scan: markers, restart intervals
// and values do not change. libjpeg first converts any other JPEG into such a scan.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "rewrite.h"
#include "scan.h"
#include "tokens.h"
#include "transcoder.h"

namespace tfpipe {
namespace {

// SplitMix64 of Steele, Lea and Flood (2014).
uint64_t Random(uint64_t* state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

// Returns 2 ** (eighths / 8) * 256. Integers give the same bytes on every machine.
uint64_t Power(int eighths) {
  constexpr uint64_t kPowers[8] = {256, 279, 304, 332, 362, 395, 431, 470};
  const int octaves = eighths >> 3;
  const uint64_t power = kPowers[eighths & 7];
  return octaves >= 0 ? power << octaves : power >> -octaves;
}

// Sets the depths of the leaves of the Huffman tree, at most kMaxLength (T.81, K.2).
// `weights` has one more leaf than symbols, of weight 0: its code is the last, of all
// ones, which no JPEG may use (Annex C).
void FillDepths(std::vector<uint64_t> weights, uint8_t* depths) {
  const int num_leaves = static_cast<int>(weights.size());
  std::vector<uint64_t> sorted(num_leaves), sums(num_leaves);
  std::vector<int> parents(2 * num_leaves), levels(2 * num_leaves);
  for (bool fits = false; !fits;) {
    for (int i = 0; i < num_leaves; ++i) sorted[i] = weights[i] << 10 | i;
    std::sort(sorted.begin(), sorted.end());
    // Node i is a leaf, node num_leaves + i the i-th sum; sums never decrease.
    int leaf = 0, sum = 0;
    for (int count = 0; count < num_leaves - 1; ++count) {
      uint64_t total = 0;
      for (int child = 0; child < 2; ++child) {
        const bool takes_leaf =
            leaf < num_leaves && (sum == count || sorted[leaf] >> 10 <= sums[sum]);
        const int node = takes_leaf ? leaf : num_leaves + sum;
        total += takes_leaf ? sorted[leaf++] >> 10 : sums[sum++];
        parents[node] = num_leaves + count;
      }
      sums[count] = total;
    }
    const int root = 2 * num_leaves - 2;
    levels[root] = 0;
    fits = true;
    for (int node = root - 1; node >= 0; --node) {
      levels[node] = levels[parents[node]] + 1;
      if (node >= num_leaves) continue;
      depths[sorted[node] & 1023] = static_cast<uint8_t>(std::min(levels[node], 255));
      fits = fits && levels[node] <= kMaxLength;
    }
    for (int i = 0; i < num_leaves - 1; ++i) weights[i] = weights[i] / 2 + 1;
  }
}

// Makes new codes for the counts, multiplied or divided by random factors of up to 2 **
// (noise / 8).
void FillNewCodes(const Codes& source, const uint32_t* counts, int noise, uint64_t seed,
                  NewCodes* fresh) {
  const int num_symbols = source.num_symbols;
  const uint64_t total = std::accumulate(counts, counts + num_symbols, uint64_t{0});
  std::vector<uint64_t> weights(num_symbols + 1, 0);
  uint64_t keys[kMaxSymbols];
  for (int i = 0; i < num_symbols; ++i) {
    // A symbol without a count may still come.
    const uint64_t weight = 16 * uint64_t{counts[i]} + (total >> source.lengths[i]) + 1;
    const uint64_t random = Random(&seed);
    const int eighths = static_cast<int>(random & 0xffff) * (2 * noise + 1) / 0x10000;
    weights[i] = weight * Power(eighths - noise);
    keys[i] = random >> 16 << 8 | static_cast<uint64_t>(i);
  }
  uint8_t depths[kMaxSymbols + 1];
  FillDepths(weights, depths);
  memcpy(fresh->lengths, depths, num_symbols);
  std::iota(fresh->order, fresh->order + num_symbols, uint8_t{0});
  std::sort(fresh->order, fresh->order + num_symbols, [&](int a, int b) {
    return depths[a] != depths[b] ? depths[a] < depths[b] : keys[a] < keys[b];
  });
  int code = 0, length = 0;
  for (int i = 0; i < num_symbols; ++i, ++code) {
    const int symbol = fresh->order[i];
    code <<= fresh->lengths[symbol] - length;
    length = fresh->lengths[symbol];
    fresh->codes[symbol] = static_cast<uint16_t>(code);
  }
}

// Calls the function with class, 0 for DC or 1 for AC, and number of every table in
// use.
template <typename Function>
void ForEachTable(const Header& header, Function function) {
  for (int number = 0; number < kMaxTables; ++number) {
    bool uses_dc = false, uses_ac = false;
    for (int i = 0; i < header.num_components; ++i) {
      uses_dc = uses_dc || header.components[i].dc == number;
      uses_ac = uses_ac || header.components[i].ac == number;
    }
    if (uses_dc) function(0, number);
    if (uses_ac) function(1, number);
  }
}

int TableOf(int kind, int number) { return kind * kMaxTables + number; }

// The memory of a call; too much for the stack of a thread.
struct Work {
  Header header;
  Layout layout;
  Scan source, target;
  Readings readings;
  Tokens tokens;
  uint32_t counts[2][kMaxTables][kMaxSymbols];  // of the symbols
  NewCodes codes[2][kMaxTables];
  Writing writing;
};

// Both loops over the scan shift by a number of bits at every step. BMI2 has better
// instructions to shift.
#ifdef __x86_64__
__attribute__((target("bmi2"))) bool ReadWithBmi2(Work* work) {
  return ReadIntervals(work->source, work->header, work->layout, work->readings,
                       &work->tokens);
}
__attribute__((target("bmi2"))) void WriteWithBmi2(Work* work) {
  WriteIntervals(work->tokens, work->writing, &work->target);
}
#endif

bool ReadTokens(Work* work) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("bmi2")) return ReadWithBmi2(work);
#endif
  return ReadIntervals(work->source, work->header, work->layout, work->readings,
                       &work->tokens);
}

void WriteTokens(Work* work) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("bmi2")) return WriteWithBmi2(work);
#endif
  WriteIntervals(work->tokens, work->writing, &work->target);
}

void CountSymbols(Work* work) {
  ForEachTable(work->header, [work](int kind, int number) {
    const uint32_t* kinds = work->tokens.counts + TableOf(kind, number) * kKinds;
    const Reading& reading = work->readings[kind][number];
    uint32_t* counts = work->counts[kind][number];
    for (int lookahead = 0; lookahead < kNumTokenLooks; ++lookahead) {
      const Look& look = reading.looks[lookahead];
      for (int i = 0; i < look.count; ++i) counts[look.numbers[i]] += kinds[lookahead];
    }
    for (int symbol = 0; symbol < kMaxSymbols; ++symbol) {
      counts[symbol] += kinds[kNumTokenLooks + symbol];
    }
  });
}

// Bits of all codes and values, with the old tables and with the new tables.
struct NumBits {
  int64_t before = 0, after = 0;
};

// Makes new codes. Returns the bits of the image.
NumBits ChooseCodes(int noise, uint64_t seed, Work* work) {
  NumBits bits;
  ForEachTable(work->header, [&](int kind, int number) {
    const Codes& codes = work->header.tables[kind][number];
    NewCodes* fresh = &work->codes[kind][number];
    uint64_t state = seed;
    state = Random(&state) + static_cast<uint64_t>(TableOf(kind, number));
    const uint32_t* counts = work->counts[kind][number];
    FillNewCodes(codes, counts, noise, state, fresh);
    for (int i = 0; i < codes.num_symbols; ++i) {
      const int size = SizeOf(codes.symbols[i], kind == 0);
      bits.before += int64_t{counts[i]} * (codes.lengths[i] + size);
      bits.after += int64_t{counts[i]} * (fresh->lengths[i] + size);
    }
  });
  return bits;
}

constexpr int kNoises[] = {0, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64};
constexpr int kMaxPerThousand = 1010;  // bits of the copy to bits of the source

// Makes the new codes with the most noise that the size allows. Returns their bits.
int64_t ChooseAllCodes(uint64_t seed, Work* work) {
  int low = 0, high = static_cast<int>(sizeof(kNoises) / sizeof(kNoises[0])) - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    const NumBits bits = ChooseCodes(kNoises[middle], seed, work);
    const bool fits = bits.after * 1000 <= bits.before * kMaxPerThousand;
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  return ChooseCodes(kNoises[low], seed, work).after;
}

// Writes the new tables in place of the old ones.
void WriteTables(const Work& work, uint8_t* result) {
  ForEachTable(work.header, [&](int kind, int number) {
    const Codes& codes = work.header.tables[kind][number];
    const NewCodes& fresh = work.codes[kind][number];
    memset(result + codes.at, 0, kMaxLength);
    for (int i = 0; i < codes.num_symbols; ++i) {
      ++result[codes.at + fresh.lengths[i] - 1];
      result[codes.at + kMaxLength + static_cast<size_t>(i)] =
          codes.symbols[fresh.order[i]];
    }
  });
}

// Writes the codes with stuffed zeros (T.81, F.1.2.3) and restart markers. Returns the
// end of the codes.
uint8_t* WriteStuffed(const Scan& scan, uint8_t* to) {
  const uint8_t* next = scan.bytes.data();
  for (size_t number = 0; number < scan.ends.size(); ++number) {
    if (number > 0) {
      *to++ = 0xff;
      *to++ = static_cast<uint8_t>(0xd0 + ((number - 1) & 7));
    }
    const uint8_t* end = scan.bytes.data() + scan.ends[number];
    while (next < end) {
      const void* ff = memchr(next, 0xff, static_cast<size_t>(end - next));
      const uint8_t* last = ff ? static_cast<const uint8_t*>(ff) + 1 : end;
      const auto length = static_cast<size_t>(last - next);
      memcpy(to, next, length);
      to += length;
      if (ff) *to++ = 0;
      next = last;
    }
  }
  return to;
}

// Writes the file: the header with the new tables, the codes, the rest of the source.
void Assemble(const uint8_t* jpeg, size_t size, const Work& work, uint8_t** result,
              size_t* result_size) {
  const Scan& scan = work.target;
  const uint8_t* bytes = scan.bytes.data();
  const size_t num_bytes = scan.ends.back(), rest = size - work.source.end;
  const auto stuffed = static_cast<size_t>(std::count(bytes, bytes + num_bytes, 0xff));
  const size_t num_markers = scan.ends.size() - 1;
  *result_size = work.header.size + num_bytes + stuffed + 2 * num_markers + rest;
  *result = static_cast<uint8_t*>(malloc(*result_size));
  if (*result == nullptr) throw std::bad_alloc();
  memcpy(*result, jpeg, work.header.size);
  WriteTables(work, *result);
  memcpy(WriteStuffed(scan, *result + work.header.size), jpeg + work.source.end, rest);
}

// Varies an image with one sequential scan. Returns whether the image is such an image,
// and sound.
bool VarySequential(const uint8_t* jpeg, size_t size, uint64_t seed, uint8_t** result,
                    size_t* result_size) {
  Header header;
  Layout layout;
  if (!ReadHeader(jpeg, size, &header) || !FillLayout(header, &layout)) return false;
  // Not `Work()`: clearing the tables would take longer than the rest of a small image.
  const std::unique_ptr<Work> owner(new Work);
  Work* work = owner.get();
  work->header = header;
  work->layout = layout;
  memset(work->tokens.counts, 0, sizeof(work->tokens.counts));
  memset(work->counts, 0, sizeof(work->counts));
  if (!ReadBytes(jpeg, size, header, &work->source)) return false;
  ForEachTable(header, [=](int kind, int number) {
    FillReading(work->header.tables[kind][number], kind == 0, TableOf(kind, number),
                &work->readings[kind][number]);
  });
  work->tokens.values.Grow(size + kMaxMcuTokens);
  if (!ReadTokens(work)) return false;
  CountSymbols(work);
  const int64_t num_bits = ChooseAllCodes(seed, work);
  ForEachTable(header, [=](int kind, int number) {
    const int first = TableOf(kind, number) * kKinds;
    FillWriting(work->readings[kind][number], work->codes[kind][number],
                work->tokens.counts + first, work->writing + first);
  });
  work->target.bytes.Grow(static_cast<size_t>(num_bits / 8) + work->tokens.ends.size() +
                          8);
  WriteTokens(work);
  Assemble(jpeg, size, *work, result, result_size);
  return true;
}

// Varies a JPEG that libjpeg has written, and frees it.
const char* VaryWritten(uint8_t* written, size_t size, uint64_t seed, uint8_t** result,
                        size_t* result_size) {
  bool varied = false;
  try {
    varied = VarySequential(written, size, seed, result, result_size);
  } catch (const std::bad_alloc&) {
    free(written);
    return "no_memory";
  }
  free(written);
  return varied ? nullptr : "unwritable";
}

const char* Vary(const uint8_t* jpeg, size_t size, uint64_t seed, bool mirrors,
                 uint8_t** result, size_t* result_size) {
  if (!mirrors && VarySequential(jpeg, size, seed, result, result_size)) return nullptr;
  uint8_t* written;
  size_t written_size;
  const char* reason = mirrors ? Mirrored(jpeg, size, &written, &written_size)
                               : Rewritten(jpeg, size, 0, &written, &written_size);
  if (reason != nullptr) return reason;
  return VaryWritten(written, written_size, seed, result, result_size);
}

}  // namespace
}  // namespace tfpipe

const char* tfpipe_vary(const uint8_t* jpeg, size_t size, uint64_t seed, int mirror,
                        uint8_t** result, size_t* result_size) {
  try {
    return tfpipe::Vary(jpeg, size, seed, mirror != 0, result, result_size);
  } catch (const std::bad_alloc&) {
    return "no_memory";
  }
}
