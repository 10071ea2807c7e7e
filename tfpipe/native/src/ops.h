// Names and functions that the ops in crop.cc and record_ops.cc share.
#ifndef TFPIPE_NATIVE_OPS_H_
#define TFPIPE_NATIVE_OPS_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/variant.h"

#include "example.h"

namespace tfpipe {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::DataLoss;
using tensorflow::errors::InvalidArgument;
using tensorflow::errors::ResourceExhausted;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The name of a shape function's result differs between TensorFlow 2.16 and 2.21.
using Status = decltype(InvalidArgument(""));

// Returns the error of a file that cannot be opened or read, by its errno. The error
// tells of the host, and nothing of records.
inline Status HostError(const std::string& path, int error) {
  return tensorflow::errors::Unavailable(path, " cannot be read: ", strerror(error));
}

inline const uint8_t* BytesOf(const tensorflow::tstring& text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

inline uint8_t* BytesOf(const Tensor& part) {
  return static_cast<uint8_t*>(part.data());
}

// Returns the bytes of an encoded image:
//
//   string          the bytes of the string
//   variant, uint8  the bytes of the tensor, see record_ops.cc
//   other variant   no bytes
inline Span ImageAt(const Tensor& encoded, int64_t i) {
  if (encoded.dtype() == tensorflow::DT_STRING) {
    const auto& text = encoded.flat<tensorflow::tstring>()(i);
    return {BytesOf(text), BytesOf(text) + text.size()};
  }
  const auto* part = encoded.flat<tensorflow::Variant>()(i).get<Tensor>();
  if (part == nullptr || part->dtype() != tensorflow::DT_UINT8) return {};
  return {BytesOf(*part), BytesOf(*part) + part->NumElements()};
}

}  // namespace tfpipe

#endif
