// Takes the wanted MCUs of two rows in turns.
//
// A look-up waits for the look-up before it, and the processor often guesses the end of
// a block wrong. With two rows, the processor works on the codes of one row while the
// other row waits. Both rows must begin at known bits, so the image needs entry points.
#ifndef TFPIPE_NATIVE_TWO_ROWS_H_
#define TFPIPE_NATIVE_TWO_ROWS_H_

#include <stdint.h>
#include <string.h>

#include "huffman.h"

namespace tfpipe {

// A row whose wanted MCUs are taken. The struct has fewer members in the loop than
// Bits, so that two rows stay in registers.
struct RowTaker {
  Huffman* h;
  JBLOCK* blocks;  // of an MCU
  int num_mcus;    // left
  int block;       // index of the present block in the MCU
  const AcTable* ac;
  JCOEF* coefficients;  // of the present block
  unsigned at;          // first bit of the group of look-ups in the chunk
  uint64_t bits;        // that follow the bits taken
  uint32_t taken;       // by the group of look-ups, as in TakeAcs
};

// Calls a function of huffman.h or codes.h with the bits of the row.
template <typename Take>
TFPIPE_INLINE auto WithBits(RowTaker* t, const Take& take) {
  Bits b = BitsFrom(t->h->chunk, t->at);
  const auto result = take(&b);
  t->at = BitIn(t->h->chunk, b);
  return result;
}

// Makes a block ready to be read. Returns whether all bits taken lie before the end of
// the data.
TFPIPE_INLINE bool Reserve(RowTaker* t) {
  const int end = static_cast<int>(t->at >> 3) + kChunkPadding;
  if (!TFPIPE_RARE(end > t->h->chunk.size)) return true;
  return WithBits(t, [t](Bits* b) { return Reserve(t->h, b); });
}

// Begins a block. Returns whether its DC code is sound.
TFPIPE_INLINE bool BeginBlock(RowTaker* t) {
  const int component = t->h->skipped.component_of[t->block];
  const SkippedComponent& tables = t->h->skipped.components[component];
  int* last = &t->h->last_dc[component];
  if (!Reserve(t)) return false;
  if (!WithBits(t, [&](Bits* b) { return TakeLastDc(*tables.dc, last, b); }))
    return false;
  t->ac = tables.ac;
  t->coefficients = t->blocks[t->block];
  t->coefficients[0] = static_cast<JCOEF>(*last);
  t->taken = 1 << 8;
  return true;
}

inline bool BeginMcu(RowTaker* t) {
  memset(t->blocks, 0, static_cast<size_t>(t->h->skipped.num_blocks) * sizeof(JBLOCK));
  t->block = 0;
  return BeginBlock(t);
}

TFPIPE_INLINE void BeginGroup(RowTaker* t) {
  t->bits = BitsAt(t->h->chunk.bytes, t->at);
}

TFPIPE_INLINE void EndGroup(RowTaker* t) {
  t->at += t->taken & 63;
  t->taken &= 255 << 8;
}

TFPIPE_INLINE uint32_t NextPair(const RowTaker& t) {
  return t.ac->pairs[t.bits >> (64 - kAcLookBits)];
}

// Takes a look-up of `pairs`. Returns whether the block goes on after it.
TFPIPE_INLINE bool TakeWithin(RowTaker* t, uint32_t pair) {
  const uint32_t sum = t->taken + pair;
  if (sum & (kStuckAdvance | kEndAdvance) << 8) return false;
  TakePair(pair, t->taken >> 8 & 255, sum >> 8 & 255, &t->bits, t->coefficients);
  t->taken = sum;
  return true;
}

// Takes the look-up for which TakeWithin returned false: the block ends, or no look-up
// holds the next symbol. Calls `put` after the last block of an MCU. Returns
// whether the data are sound.
template <typename Put>
TFPIPE_INLINE bool TakeEnd(RowTaker* t, uint32_t pair, const Put& put) {
  EndGroup(t);
  uint64_t index = t->taken >> 8;
  const uint64_t next = (t->taken + pair) >> 8 & 255;
  if (IsEnd(next)) {
    TakePair(pair, index, next, &t->bits, t->coefficients);
    t->at += pair & 63;
  } else {
    index = WithBits(t, [&](Bits* b) {
      return TakeLongAc<true>(*t->ac, index, b, t->coefficients);
    });
    t->taken = static_cast<uint32_t>(index) << 8;
    if (index < 64) return true;
    if (index >= kBadIndex) return false;
  }
  if (++t->block < t->h->skipped.num_blocks) return BeginBlock(t);
  if (!Reserve(t)) return false;
  put();
  return --t->num_mcus == 0 || BeginMcu(t);
}

// Starts a row at the first wanted MCU, where `h` is. Returns whether its first DC code
// is sound.
inline bool StartRow(Huffman* h, JBLOCK* blocks, RowTaker* t) {
  *t = {};
  t->h = h;
  t->blocks = blocks;
  t->num_mcus = h->last_column - h->first_column + 1;
  t->at = BitIn(h->chunk, h->bits);
  return BeginMcu(t);
}

// Takes the rest of a row. Returns whether the data are sound.
template <typename Put>
inline bool TakeRest(RowTaker* taker, const Put& put) {
  RowTaker t = *taker;
  while (t.num_mcus > 0) {
    BeginGroup(&t);
    uint32_t pair = 0;
    bool within = true;
#pragma GCC unroll 3
    for (int i = 0; i < kGroup && within; ++i)
      within = TakeWithin(&t, pair = NextPair(t));
    if (within)
      EndGroup(&t);
    else if (!TakeEnd(&t, pair, put))
      return false;
  }
  t.h->bits = BitsFrom(t.h->chunk, t.at);
  return true;
}

// Takes two rows, and calls the function of a row after each of its MCUs. Returns
// whether the data are sound.
template <typename Put, typename PutSecond>
inline bool TakeInTurns(RowTaker* first_taker, RowTaker* second_taker, const Put& put,
                        const PutSecond& put_second) {
  RowTaker first = *first_taker, second = *second_taker;
  while (first.num_mcus > 0 && second.num_mcus > 0) {
    BeginGroup(&first);
    BeginGroup(&second);
    uint32_t pair = 0, second_pair = 0;
    bool within = true, second_within = true;
#pragma GCC unroll 3
    for (int i = 0; i < kGroup; ++i) {
      pair = NextPair(first);
      second_pair = NextPair(second);
      within = TakeWithin(&first, pair);
      if (!within) break;
      second_within = TakeWithin(&second, second_pair);
      if (!second_within) break;
    }
    if (!within) {
      EndGroup(&second);
      if (!TakeEnd(&first, pair, put)) return false;
    } else if (!second_within) {
      EndGroup(&first);
      if (!TakeEnd(&second, second_pair, put_second)) return false;
    } else {
      EndGroup(&first);
      EndGroup(&second);
    }
  }
  return TakeRest(&first, put) && TakeRest(&second, put_second);
}

}  // namespace tfpipe

#endif
