// Writes the same coefficients with other Huffman codes.
//
// The lengths of the new codes are those for the counts of the symbols, multiplied by
// random numbers. These are as large as the size of the image allows. Codes of equal
// length change places at random. A code therefore has other bits in each copy, and
// begins at another bit: copies have no long runs of bytes in common.
//
// A JPEG with one sequential scan is read and written here: its markers, restart
// intervals and values stay as they are. libjpeg writes any other JPEG as such a scan
// first.
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

// Sets the depths of the leaves of the Huffman tree, which are at most kMaxLength.
// `weights` has one more leaf than symbols, of weight 0: its code is the last one, of
// all ones, which no JPEG may use.
void FillDepths(std::vector<uint64_t> weights, uint8_t* depths) {
  const int num_leaves = static_cast<int>(weights.size());
  std::vector<uint64_t> sorted(num_leaves), sums(num_leaves);
  std::vector<int> parents(2 * num_leaves), levels(2 * num_leaves);
  for (bool fits = false; !fits;) {
    for (int i = 0; i < num_leaves; ++i) sorted[i] = weights[i] << 10 | i;
    std::sort(sorted.begin(), sorted.end());
    // Node i is a leaf, node num_leaves + i the i-th sum; sums never fall.
    int leaf = 0, sum = 0;
    for (int made = 0; made < num_leaves - 1; ++made) {
      uint64_t total = 0;
      for (int child = 0; child < 2; ++child) {
        const bool takes_leaf =
            leaf < num_leaves && (sum == made || sorted[leaf] >> 10 <= sums[sum]);
        const int node = takes_leaf ? leaf : num_leaves + sum;
        total += takes_leaf ? sorted[leaf++] >> 10 : sums[sum++];
        parents[node] = num_leaves + made;
      }
      sums[made] = total;
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

// Makes new codes for the counts, each multiplied or divided by a random number of up
// to 2 ** (noise / 8).
void FillNewCodes(const Codes& source, const uint32_t* counts, int noise, uint64_t seed,
                  NewCodes* fresh) {
  const int num_symbols = source.num_symbols;
  const uint64_t total = std::accumulate(counts, counts + num_symbols, uint64_t{0});
  std::vector<uint64_t> weights(num_symbols + 1, 0);
  uint64_t keys[kMaxSymbols];
  for (int i = 0; i < num_symbols; ++i) {
    // A symbol that was not counted may still come.
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
  std::sort(fresh->order, fresh->order + num_symbols, [&](int one, int other) {
    return depths[one] != depths[other] ? depths[one] < depths[other]
                                        : keys[one] < keys[other];
  });
  int code = 0, length = 0;
  for (int i = 0; i < num_symbols; ++i, ++code) {
    const int symbol = fresh->order[i];
    code <<= fresh->lengths[symbol] - length;
    length = fresh->lengths[symbol];
    fresh->codes[symbol] = static_cast<uint16_t>(code);
  }
}

// Calls the function with class and number of each table that the image uses.
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

// What a call needs; too much for the stack of a thread.
struct Work {
  Header header;
  Layout layout;
  Scan source, made;
  Readings readings;
  Tokens tokens;
  uint32_t counts[2][kMaxTables][kMaxSymbols];  // of the symbols
  NewCodes codes[2][kMaxTables];
  Writing writing;
};

// Both loops over the scan need a shift by a number of bits at every step, for which
// recent processors have better instructions.
#ifdef __x86_64__
__attribute__((target("bmi2"))) bool ReadWithBmi2(Work* work) {
  return ReadIntervals(work->source, work->header, work->layout, work->readings,
                       &work->tokens);
}
__attribute__((target("bmi2"))) void WriteWithBmi2(Work* work) {
  WriteIntervals(work->tokens, work->writing, &work->made);
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
  WriteIntervals(work->tokens, work->writing, &work->made);
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

// Bits of all codes and values with the old tables and with the new ones.
struct NumBits {
  int64_t before = 0, after = 0;
};

// Makes new codes. Returns what they cost.
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
constexpr int kMaxPerThousand = 1010;  // codes of the copy to those of the source

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
void WriteTables(const Work& work, uint8_t* made) {
  ForEachTable(work.header, [&](int kind, int number) {
    const Codes& codes = work.header.tables[kind][number];
    const NewCodes& fresh = work.codes[kind][number];
    memset(made + codes.at, 0, kMaxLength);
    for (int i = 0; i < codes.num_symbols; ++i) {
      ++made[codes.at + fresh.lengths[i] - 1];
      made[codes.at + kMaxLength + static_cast<size_t>(i)] =
          codes.symbols[fresh.order[i]];
    }
  });
}

// Writes the codes with stuffed zeros and restart markers. Returns where they end.
uint8_t* WriteStuffed(const Scan& scan, uint8_t* to) {
  const uint8_t* next = scan.bytes.data();
  for (size_t number = 0; number < scan.ends.size(); ++number) {
    if (number > 0) {
      *to++ = 0xff;
      *to++ = static_cast<uint8_t>(0xd0 + ((number - 1) & 7));
    }
    const uint8_t* end = scan.bytes.data() + scan.ends[number];
    while (next < end) {
      const void* found = memchr(next, 0xff, static_cast<size_t>(end - next));
      const uint8_t* last = found ? static_cast<const uint8_t*>(found) + 1 : end;
      const auto length = static_cast<size_t>(last - next);
      memcpy(to, next, length);
      to += length;
      if (found) *to++ = 0;
      next = last;
    }
  }
  return to;
}

// Writes the file: the header with the new tables, the codes, the rest of the source.
void Assemble(const uint8_t* jpeg, size_t size, const Work& work, uint8_t** made,
              size_t* made_size) {
  const Scan& scan = work.made;
  const uint8_t* bytes = scan.bytes.data();
  const size_t num_bytes = scan.ends.back(), rest = size - work.source.end;
  const auto stuffed = static_cast<size_t>(std::count(bytes, bytes + num_bytes, 0xff));
  const size_t num_markers = scan.ends.size() - 1;
  *made_size = work.header.size + num_bytes + stuffed + 2 * num_markers + rest;
  *made = static_cast<uint8_t*>(malloc(*made_size));
  if (*made == nullptr) throw std::bad_alloc();
  memcpy(*made, jpeg, work.header.size);
  WriteTables(work, *made);
  memcpy(WriteStuffed(scan, *made + work.header.size), jpeg + work.source.end, rest);
}

// Varies an image with one sequential scan. Returns whether it is sound and is one.
bool VarySequential(const uint8_t* jpeg, size_t size, uint64_t seed, uint8_t** made,
                    size_t* made_size) {
  Header header;
  Layout layout;
  if (!ReadHeader(jpeg, size, &header) || !FillLayout(header, &layout)) return false;
  // Not `Work()`: to clear the tables would take longer than the rest of a small image.
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
  work->made.bytes.Grow(static_cast<size_t>(num_bits / 8) + work->tokens.ends.size() +
                        8);
  WriteTokens(work);
  Assemble(jpeg, size, *work, made, made_size);
  return true;
}

// Varies what libjpeg has written, and frees it.
const char* VaryMade(uint8_t* written, size_t size, uint64_t seed, uint8_t** made,
                     size_t* made_size) {
  bool varied = false;
  try {
    varied = VarySequential(written, size, seed, made, made_size);
  } catch (const std::bad_alloc&) {
    free(written);
    return "no_memory";
  }
  free(written);
  return varied ? nullptr : "unwritable";
}

const char* Vary(const uint8_t* jpeg, size_t size, uint64_t seed, bool mirrors,
                 uint8_t** made, size_t* made_size) {
  if (!mirrors && VarySequential(jpeg, size, seed, made, made_size)) return nullptr;
  uint8_t* written;
  size_t written_size;
  const char* reason = mirrors ? Mirrored(jpeg, size, &written, &written_size)
                               : Rewritten(jpeg, size, 0, &written, &written_size);
  if (reason != nullptr) return reason;
  return VaryMade(written, written_size, seed, made, made_size);
}

}  // namespace
}  // namespace tfpipe

const char* tfpipe_vary(const uint8_t* jpeg, size_t size, uint64_t seed, int mirror,
                        uint8_t** made, size_t* made_size) {
  try {
    return tfpipe::Vary(jpeg, size, seed, mirror != 0, made, made_size);
  } catch (const std::bad_alloc&) {
    return "no_memory";
  }
}
