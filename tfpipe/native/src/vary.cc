// Writes the same coefficients with other Huffman codes.
//
// The lengths of the new codes are those for counts that are multiplied by random numbers.
// These numbers are as large as the size of the image allows. Codes of equal length change
// places at random. A code and its value therefore begin at another bit in each copy, and
// copies have no long runs of bytes in common.
//
// A JPEG with one sequential scan is read and written here: its markers, restart intervals
// and values stay where they are. libjpeg writes any other JPEG as such a scan first.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

#include "recode.h"
#include "rewrite.h"
#include "transcoder.h"

namespace tfpipe {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kMaxTables = 4;  // of a class: DC or AC
constexpr int kMaxParts = 4;   // components

// A component, and where it finds its tables.
struct Part {
  int id, across, down, dc, ac;
};

// A table, and where its 16 counts begin in the file, or 0.
struct Place {
  size_t at = 0;
  Codes codes;
};

// The markers up to the codes of the only scan.
struct Header {
  size_t size = 0;  // in bytes
  int height = 0, width = 0, num_parts = 0;
  uint32_t interval = 0;  // MCUs between restart markers, or 0
  Part parts[kMaxParts];
  Place tables[2][kMaxTables];  // DC, AC
};

// The codes without stuffed zeros, and where each restart interval ends.
struct Scan {
  Bytes bytes;
  std::vector<size_t> ends;
  size_t end = 0;  // of the scan in the file
};

// The blocks of an MCU: their tables.
struct Layout {
  int64_t num_mcus = 0;
  int num_blocks = 0, dc[kMaxMcuBlocks], ac[kMaxMcuBlocks];
};

// New codes for a table.
struct Fresh {
  uint8_t lengths[kMaxSymbols];
  uint16_t codes[kMaxSymbols];
  uint8_t order[kMaxSymbols];  // numbers of the symbols in the order of the codes
};

int Pair(const uint8_t* bytes) { return bytes[0] << 8 | bytes[1]; }

// Each of these reads the content of a segment into the header. They return whether it
// is what most JPEGs have.

bool ReadTables(const uint8_t* jpeg, size_t at, size_t end, Header* header) {
  while (at < end) {
    if (end - at < 17) return false;
    const int kind = jpeg[at] >> 4, number = jpeg[at] & 15;
    if (kind > 1 || number >= kMaxTables) return false;
    Place* place = &header->tables[kind][number];
    place->at = ++at;
    place->codes.num_symbols = 0;
    for (int length = 1; length <= kMaxLength; ++length) {
      for (int i = jpeg[at + length - 1]; i > 0; --i) {
        if (place->codes.num_symbols == kMaxSymbols) return false;
        place->codes.lengths[place->codes.num_symbols++] = static_cast<uint8_t>(length);
      }
    }
    at += 16;
    const size_t num_symbols = static_cast<size_t>(place->codes.num_symbols);
    if (end - at < num_symbols) return false;
    memcpy(place->codes.symbols, jpeg + at, num_symbols);
    at += num_symbols;
  }
  return true;
}

bool ReadFrame(const uint8_t* content, size_t size, Header* header) {
  if (header->num_parts != 0 || size < 6 || content[0] != 8) return false;
  header->height = Pair(content + 1);
  header->width = Pair(content + 3);
  const int num_parts = content[5];
  if (num_parts < 1 || num_parts > kMaxParts) return false;
  if (size != 6 + 3 * static_cast<size_t>(num_parts)) return false;
  for (int i = 0; i < num_parts; ++i) {
    const uint8_t* part = content + 6 + 3 * i;
    const int across = part[1] >> 4, down = part[1] & 15;
    if (across < 1 || across > 4 || down < 1 || down > 4) return false;
    header->parts[i] = {part[0], across, down, 0, 0};
  }
  header->num_parts = num_parts;
  const int64_t values = int64_t{header->height} * header->width * num_parts;
  return values > 0 && values < kMaxBytes;
}

bool ReadScan(const uint8_t* content, size_t size, Header* header) {
  const size_t num_parts = static_cast<size_t>(header->num_parts);
  if (num_parts == 0 || size != 4 + 2 * num_parts || content[0] != num_parts) {
    return false;
  }
  for (size_t i = 0; i < num_parts; ++i) {
    Part* part = &header->parts[i];
    part->dc = content[2 + 2 * i] >> 4;
    part->ac = content[2 + 2 * i] & 15;
    if (content[1 + 2 * i] != part->id) return false;
    if (part->dc >= kMaxTables || part->ac >= kMaxTables) return false;
    if (!IsSound(header->tables[0][part->dc].codes, true)) return false;
    if (!IsSound(header->tables[1][part->ac].codes, false)) return false;
  }
  const uint8_t* last = content + 1 + 2 * num_parts;
  return last[0] == 0 && last[1] == kPlaces - 1 && last[2] == 0;
}

// Reads the markers. Returns whether the image has one sequential scan of Huffman codes.
bool ReadHeader(const uint8_t* jpeg, size_t size, Header* header) {
  if (size < 4 || jpeg[0] != 0xff || jpeg[1] != 0xd8) return false;
  size_t at = 2;
  while (size - at >= 4 && jpeg[at] == 0xff) {
    const int marker = jpeg[at + 1];
    const size_t begin = at + 4, length = static_cast<size_t>(Pair(jpeg + at + 2));
    if (length < 2 || size - at - 2 < length) return false;
    const uint8_t* content = jpeg + begin;
    at += 2 + length;
    if (marker == 0xda) {
      header->size = at;
      return ReadScan(content, length - 2, header);
    }
    bool plain = marker == 0xdb || marker == 0xfe || (marker >> 4) == 0xe;
    if (marker == 0xc4) plain = ReadTables(jpeg, begin, at, header);
    if (marker == 0xc0 || marker == 0xc1) plain = ReadFrame(content, length - 2, header);
    if (marker == 0xdd) {
      plain = length == 4;
      if (plain) header->interval = static_cast<uint32_t>(Pair(content));
    }
    if (!plain) return false;
  }
  return false;
}

int64_t CountOf(int64_t pixels, int64_t side) { return (pixels + side - 1) / side; }

// Returns whether the blocks of an MCU are not too many.
bool FillLayout(const Header& header, Layout* layout) {
  int across = 1, down = 1;
  // The only component of a scan has rows of single blocks, whatever its sampling.
  const bool single = header.num_parts == 1;
  for (int i = 0; i < header.num_parts; ++i) {
    const Part& part = header.parts[i];
    const int num_blocks = single ? 1 : part.across * part.down;
    if (layout->num_blocks + num_blocks > kMaxMcuBlocks) return false;
    for (int block = 0; block < num_blocks; ++block) {
      layout->dc[layout->num_blocks] = part.dc;
      layout->ac[layout->num_blocks++] = part.ac;
    }
    if (single) continue;
    across = std::max(across, part.across);
    down = std::max(down, part.down);
  }
  layout->num_mcus = CountOf(header.width, 8 * across) * CountOf(header.height, 8 * down);
  return true;
}

// Removes the stuffed zeros. Returns whether the restart markers are in order, and EOI
// ends the scan.
bool ReadBytes(const uint8_t* jpeg, size_t size, const Header& header, Scan* scan) {
  scan->bytes.resize(size - header.size + kPadding);
  uint8_t* to = scan->bytes.data();
  const uint8_t *from = jpeg + header.size, *end = jpeg + size;
  while (from < end) {
    const auto* found = static_cast<const uint8_t*>(memchr(from, 0xff, end - from));
    if (found == nullptr || end - found < 2) return false;
    memcpy(to, from, found - from);
    to += found - from;
    from = found + 2;
    const int marker = found[1];
    if (marker == 0) {
      *to++ = 0xff;
      continue;
    }
    const size_t place = static_cast<size_t>(to - scan->bytes.data());
    const size_t number = scan->ends.size();
    scan->ends.push_back(place);
    scan->end = static_cast<size_t>(found - jpeg);
    if (marker == 0xd9) break;
    if (marker != static_cast<int>(0xd0 + (number & 7))) return false;
  }
  if (from > end || scan->ends.empty() || jpeg[scan->end + 1] != 0xd9) return false;
  memset(to, 0, kPadding);
  return true;
}

using Counts = uint32_t[2][kMaxTables][kMaxSymbols];
using AllSteps = Steps[2][kMaxTables];
using AllLeaps = Leaps[kMaxTables];

// Counts the codes of the first MCUs. Returns whether they are sound.
bool Count(const Scan& scan, const Header& header, const Layout& layout,
           const AllSteps& steps, int64_t num_mcus, Counts* counts) {
  size_t begin = 0;
  for (const size_t end : scan.ends) {
    Reader reader = {scan.bytes.data() + begin};
    const uint8_t* last = scan.bytes.data() + end;
    int64_t rest = std::min<int64_t>(header.interval ? header.interval : num_mcus,
                                     num_mcus);
    for (num_mcus -= rest; rest > 0; --rest) {
      for (int i = 0; i < layout.num_blocks; ++i) {
        const int dc = layout.dc[i], ac = layout.ac[i];
        const Tally to_dc = {(*counts)[0][dc]}, to_ac = {(*counts)[1][ac]};
        // The reader is up to 8 bytes ahead.
        if (reader.next > last + 8) return false;
        if (!CountBlock(steps[0][dc], steps[1][ac], &reader, to_dc, to_ac)) return false;
      }
    }
    begin = end;
    if (num_mcus == 0) break;
  }
  return true;
}

// Writes the codes of `num_mcus` MCUs, which begin and end at the given places of the
// source. Returns whether they are sound.
inline __attribute__((always_inline)) bool WriteMcus(
    const uint8_t* begin, const uint8_t* end, const Layout& layout, const AllSteps& steps,
    const AllLeaps& leaps, int64_t num_mcus, Bytes* to, size_t* size) {
  Reader reader = {begin};
  Writer writer = {to->data() + *size};
  for (; num_mcus > 0; --num_mcus) {
    const size_t used = static_cast<size_t>(writer.next - to->data());
    if (to->size() - used < kMaxMcuBytes) {
      to->resize(2 * to->size());
      writer.next = to->data() + used;
    }
    for (int i = 0; i < layout.num_blocks; ++i) {
      if (reader.next > end + 8) return false;
      const int ac = layout.ac[i];
      if (!WriteBlock(steps[0][layout.dc[i]], steps[1][ac], leaps[ac], &reader, &writer)) {
        return false;
      }
    }
  }
  writer.End();
  *size = static_cast<size_t>(writer.next - to->data());
  const int64_t unread = (end - reader.next) * 8 + reader.count;
  return 0 <= unread && unread < 8;
}

// Chooses the instructions for shifts, which are most of the work.
#ifdef __x86_64__
__attribute__((target("bmi2"))) bool WriteWithBmi2(
    const uint8_t* begin, const uint8_t* end, const Layout& layout, const AllSteps& steps,
    const AllLeaps& leaps, int64_t num_mcus, Bytes* to, size_t* size) {
  return WriteMcus(begin, end, layout, steps, leaps, num_mcus, to, size);
}
#endif

bool WriteInterval(const uint8_t* begin, const uint8_t* end, const Layout& layout,
                   const AllSteps& steps, const AllLeaps& leaps, int64_t num_mcus,
                   Bytes* to, size_t* size) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("bmi2")) {
    return WriteWithBmi2(begin, end, layout, steps, leaps, num_mcus, to, size);
  }
#endif
  return WriteMcus(begin, end, layout, steps, leaps, num_mcus, to, size);
}

// Writes all codes. Returns whether they are sound, and as many as the image needs.
bool WriteCodes(const Scan& scan, const Header& header, const Layout& layout,
                const AllSteps& steps, const AllLeaps& leaps, Scan* to) {
  to->bytes.resize(scan.bytes.size() + scan.bytes.size() / 16 + 2 * kMaxMcuBytes);
  size_t begin = 0, size = 0;
  int64_t rest = layout.num_mcus;
  for (const size_t end : scan.ends) {
    const int64_t num_mcus =
        header.interval ? std::min<int64_t>(header.interval, rest) : rest;
    if (num_mcus == 0) return false;
    const uint8_t* bytes = scan.bytes.data();
    if (!WriteInterval(bytes + begin, bytes + end, layout, steps, leaps, num_mcus,
                       &to->bytes, &size)) {
      return false;
    }
    rest -= num_mcus;
    begin = end;
    to->ends.push_back(size);
  }
  return rest == 0;
}

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
// `weights` has one more leaf than symbols, of weight 0: its code is the last one, of all
// ones, which no JPEG may use.
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

// Makes new codes for the counts, each multiplied or divided by a random number of up to
// 2 ** (noise / 8).
void FillFresh(const Codes& source, const uint32_t* counts, int noise, uint64_t seed,
               Fresh* fresh) {
  const int num_symbols = source.num_symbols;
  const uint64_t total = std::accumulate(counts, counts + num_symbols, uint64_t{0});
  std::vector<uint64_t> weights(num_symbols + 1, 0);
  uint64_t keys[kMaxSymbols];
  for (int i = 0; i < num_symbols; ++i) {
    // A symbol that was not counted may still come.
    const uint64_t weight =
        16 * uint64_t{counts[i]} + (total >> source.lengths[i]) + 1;
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

// Whether a component uses the table.
bool IsUsed(const Header& header, int kind, int number) {
  return std::any_of(header.parts, header.parts + header.num_parts, [=](const Part& p) {
    return (kind == 0 ? p.dc : p.ac) == number;
  });
}

// Calls the function with class and number of each table that the image uses.
template <typename Function>
void ForEachTable(const Header& header, Function function) {
  for (int kind = 0; kind < 2; ++kind) {
    for (int number = 0; number < kMaxTables; ++number) {
      if (IsUsed(header, kind, number)) function(kind, number);
    }
  }
}

using AllFresh = Fresh[2][kMaxTables];

// Bits of the counted codes with the old tables and with the new ones.
struct NumBits {
  int64_t before = 0, after = 0;
};

NumBits Refresh(const Header& header, const Counts& counts, int noise, uint64_t seed,
                AllFresh* all) {
  NumBits bits;
  ForEachTable(header, [&](int kind, int number) {
    const Codes& codes = header.tables[kind][number].codes;
    Fresh* fresh = &(*all)[kind][number];
    uint64_t state = seed;
    state = Random(&state) + static_cast<uint64_t>(kind * kMaxTables + number);
    const uint32_t* count = counts[kind][number];
    FillFresh(codes, count, noise, state, fresh);
    for (int i = 0; i < codes.num_symbols; ++i) {
      const int size = SizeOf(codes.symbols[i], kind == 0);
      bits.before += int64_t{count[i]} * (codes.lengths[i] + size);
      bits.after += int64_t{count[i]} * (fresh->lengths[i] + size);
    }
  });
  return bits;
}

constexpr int kNoises[] = {0, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32};
constexpr int kMorePerThousand = 10;  // size of the copy above that of the source

// Makes new codes with the most noise that the size allows.
void RefreshAll(const Header& header, const Counts& counts, uint64_t seed,
                AllFresh* all) {
  int low = 0, high = static_cast<int>(sizeof(kNoises) / sizeof(kNoises[0])) - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    const NumBits bits = Refresh(header, counts, kNoises[middle], seed, all);
    if (bits.after * 1000 <= bits.before * (1000 + kMorePerThousand)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  Refresh(header, counts, kNoises[low], seed, all);
}

// Writes the file: the header with the new tables in place of the old ones, the codes
// with stuffed zeros and restart markers, the rest. Returns null without memory.
uint8_t* Assemble(const uint8_t* jpeg, size_t size, const Header& header,
                  const AllFresh& all, const Scan& source, const Scan& scan,
                  size_t* made_size) {
  const auto begin = scan.bytes.begin();
  const size_t num_bytes = scan.ends.back();
  const size_t stuffed = static_cast<size_t>(
      std::count(begin, begin + static_cast<int64_t>(num_bytes), 0xff));
  const size_t rest = size - source.end;
  *made_size = header.size + num_bytes + stuffed + 2 * (scan.ends.size() - 1) + rest;
  auto* made = static_cast<uint8_t*>(malloc(*made_size));
  if (made == nullptr) return nullptr;
  memcpy(made, jpeg, header.size);
  ForEachTable(header, [&](int kind, int number) {
    const Place& place = header.tables[kind][number];
    const Fresh& fresh = all[kind][number];
    memset(made + place.at, 0, kMaxLength);
    for (int i = 0; i < place.codes.num_symbols; ++i) {
      ++made[place.at + fresh.lengths[i] - 1];
      made[place.at + kMaxLength + i] = place.codes.symbols[fresh.order[i]];
    }
  });
  uint8_t* to = made + header.size;
  size_t at = 0;
  for (size_t number = 0; number < scan.ends.size(); ++number) {
    if (number > 0) {
      *to++ = 0xff;
      *to++ = static_cast<uint8_t>(0xd0 + ((number - 1) & 7));
    }
    const uint8_t* next = scan.bytes.data() + at;
    const uint8_t* end = scan.bytes.data() + scan.ends[number];
    while (next < end) {
      const void* found = memchr(next, 0xff, end - next);
      const uint8_t* last = found ? static_cast<const uint8_t*>(found) + 1 : end;
      memcpy(to, next, last - next);
      to += last - next;
      if (found) *to++ = 0;
      next = last;
    }
    at = scan.ends[number];
  }
  memcpy(to, jpeg + source.end, rest);
  return made;
}

void FillAllSteps(const Header& header, const AllFresh& all, AllSteps* steps) {
  ForEachTable(header, [&](int kind, int number) {
    const Fresh& fresh = all[kind][number];
    FillSteps(header.tables[kind][number].codes, kind == 0, fresh.codes, fresh.lengths,
              &(*steps)[kind][number]);
  });
}

// The codes of at least so many MCUs are counted, and of one MCU of so many.
constexpr int64_t kMinCounted = 200, kCountedShare = 8;
// A copy may be larger or smaller by a part of so many, if not all codes were counted.
constexpr size_t kTolerance = 64;

// What a call needs; too much for the stack of a thread.
struct Work {
  Header header;
  Layout layout;
  Scan source, made;
  AllFresh fresh;
  AllSteps steps;
  AllLeaps leaps;
  Counts counts;
};

// Writes the image, counting the codes of the first MCUs only. Returns whether it could.
bool WriteImage(const uint8_t* jpeg, size_t size, uint64_t seed, int64_t num_counted,
                Work* work, uint8_t** made, size_t* made_size) {
  memset(work->fresh, 0, sizeof(work->fresh));
  memset(work->counts, 0, sizeof(work->counts));
  work->made = Scan();
  FillAllSteps(work->header, work->fresh, &work->steps);
  if (!Count(work->source, work->header, work->layout, work->steps, num_counted,
             &work->counts)) {
    return false;
  }
  RefreshAll(work->header, work->counts, seed, &work->fresh);
  FillAllSteps(work->header, work->fresh, &work->steps);
  ForEachTable(work->header, [work](int kind, int number) {
    if (kind == 1) FillLeaps(work->steps[1][number], &work->leaps[number]);
  });
  if (!WriteCodes(work->source, work->header, work->layout, work->steps, work->leaps,
                  &work->made)) {
    return false;
  }
  *made = Assemble(jpeg, size, work->header, work->fresh, work->source, work->made,
                   made_size);
  if (*made == nullptr) throw std::bad_alloc();
  return true;
}

// Varies an image with one sequential scan. Returns whether it is sound and is one.
bool VarySequential(const uint8_t* jpeg, size_t size, uint64_t seed, uint8_t** made,
                    size_t* made_size) {
  std::vector<Work> works(1);
  Work* work = &works[0];
  if (!ReadHeader(jpeg, size, &work->header)) return false;
  if (!FillLayout(work->header, &work->layout)) return false;
  if (!ReadBytes(jpeg, size, work->header, &work->source)) return false;
  const int64_t all = work->layout.num_mcus;
  const int64_t counted = std::min(all, std::max(kMinCounted, all / kCountedShare));
  if (!WriteImage(jpeg, size, seed, counted, work, made, made_size)) return false;
  const size_t margin = size / kTolerance;
  if (counted == all || (*made_size <= size + margin && *made_size + margin >= size)) {
    return true;
  }
  free(*made);
  return WriteImage(jpeg, size, seed, all, work, made, made_size);
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
