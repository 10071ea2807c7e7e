// Rewrites a JPEG, so that parts of it can be decoded sooner: see rewrite.cc.
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

// Frees what tfpipe_rewrite made.
void tfpipe_free(uint8_t* made);
}

#endif
