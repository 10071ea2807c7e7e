// C functions of the library for the converters: rewrite.cc, turn.cc and vary.cc write
// the coefficients of a JPEG again, entry_points.cc makes entry points for an unchanged
// JPEG, and check.cc checks the codes.
//
// Each function but tfpipe_check sets `result` and `result_size` and returns null, or
// returns a word: the reason why there is no result. tfpipe_free frees a result.
//
//   word             reason                                          functions
//   damaged          libjpeg fails or warns                          all
//   precision        not 8 bits a value                              all
//   no_memory        not a fault of the image                        all
//   arithmetic       arithmetic coding                               not entry points
//   too_many_pixels  more than TensorFlow decodes                    not entry points
//   late_markers     metadata after the first scan                   rewrite, vary
//   incomplete       progressive, without the last bits              not entry points
//   unwritable       libjpeg cannot write a single scan              not entry points
//   edge             a side to mirror ends within a block            turn, mirror
//   components       neither 1 nor 3 components                      turn, mirror
//   not_baseline     arithmetic, progressive, or several scans       entry points
//   restart_markers  the decoder jumps to the markers instead        entry points
//   too_large        2^29 bytes or more                              entry points
#ifndef TFPIPE_NATIVE_REWRITE_H_
#define TFPIPE_NATIVE_REWRITE_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {

// Writes the image with a restart marker after each row of MCUs.
const char* tfpipe_rewrite(const uint8_t* jpeg, size_t size, uint8_t** result,
                           size_t* result_size);

// Writes the image turned and mirrored, so that an image of the EXIF orientation, 1 to
// 8, is upright. Drops the metadata.
const char* tfpipe_turn(const uint8_t* jpeg, size_t size, int orientation,
                        uint8_t** result, size_t* result_size);

// Writes the same coefficients with Huffman codes that the seed chooses; mirrored from
// left to right, unless `mirror` is 0. Keeps the metadata. A JPEG with one sequential
// scan keeps its restart intervals; any other JPEG gets no restart markers.
const char* tfpipe_vary(const uint8_t* jpeg, size_t size, uint64_t seed, int mirror,
                        uint8_t** result, size_t* result_size);

// Makes the table of entry points of a JPEG, see entry_points.h, with about `distance`
// bytes of the JPEG between two entry points; 0 for the usual distance. A JPEG whose
// codes are not sound up to the end of the image is damaged.
const char* tfpipe_find_entry_points(const uint8_t* jpeg, size_t size, size_t distance,
                                     uint8_t** result, size_t* result_size);

// Checks that the codes of a JPEG are sound up to its end marker. Returns null for a
// sound JPEG; "corrupt" if libjpeg warns about the codes and decodes wrong pixels;
// "failed" if libjpeg refuses the JPEG; or "no_memory". `message` [kMessageLength] gets
// the words of libjpeg after "corrupt" and "failed".
const char* tfpipe_check(const uint8_t* jpeg, size_t size, char* message);

// Frees a result.
void tfpipe_free(uint8_t* result);
}

#endif
