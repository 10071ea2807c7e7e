// Writes the coefficients of a JPEG again: see rewrite.cc, turn.cc and vary.cc. Makes
// the entry points of a JPEG that stays as it is: see entry_points.cc.
#ifndef TFPIPE_NATIVE_REWRITE_H_
#define TFPIPE_NATIVE_REWRITE_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {

// Writes the image with a restart marker after each row of MCUs. Sets `made` and
// `made_size` and returns null, or returns a word: why the image must stay as it is.
//
//   damaged         libjpeg fails or warns
//   arithmetic      arithmetic coding
//   precision       not 8 bits a value
//   too_many_pixels more than TensorFlow decodes
//   late_markers    metadata after the first scan
//   incomplete      progressive, without the last bits
//   unwritable      libjpeg cannot write it as one scan
//   no_memory       not a fault of the image
const char* tfpipe_rewrite(const uint8_t* jpeg, size_t size, uint8_t** made,
                           size_t* made_size);

// Writes the image turned and mirrored, so that an image with this EXIF orientation, 1
// to 8, is upright. Drops the metadata. Sets and returns the same as tfpipe_rewrite,
// without late_markers; two more words:
//
//   edge            a side to be mirrored is not a multiple of its block
//   components      neither 1 nor 3
const char* tfpipe_turn(const uint8_t* jpeg, size_t size, int orientation,
                        uint8_t** made, size_t* made_size);

// Writes the same coefficients with Huffman codes that the seed chooses; mirrored from
// left to right, unless `mirror` is 0. Keeps the metadata. A JPEG with one sequential
// scan keeps its restart intervals; any other one gets no restart markers. Sets and
// returns the same as tfpipe_rewrite; one that is mirrored also as tfpipe_turn.
const char* tfpipe_vary(const uint8_t* jpeg, size_t size, uint64_t seed, int mirror,
                        uint8_t** made, size_t* made_size);

// Makes the table of entry points of a JPEG, see entry_points.h, with about `distance`
// bytes of the JPEG between two of them; 0 stands for the usual distance. Sets `made`
// and `made_size` and returns null, or returns a word: why the image has no entry
// points.
//
//   damaged          libjpeg fails, or the codes are not sound up to the end of the
//   image precision        not 8 bits a value not_baseline     arithmetic coding,
//   progressive, or several scans restart_markers  the decoder jumps to these instead
//   too_large        2^29 bytes or more
//   no_memory        not a fault of the image
const char* tfpipe_find_entry_points(const uint8_t* jpeg, size_t size, size_t distance,
                                     uint8_t** made, size_t* made_size);

// Frees what one of these functions made.
void tfpipe_free(uint8_t* made);
}

#endif
