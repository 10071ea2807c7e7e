// The ops of tfpipe.native.record_op on images that were read in place:
//
//   TfpipeJpegSizes   the sides of JPEGs, from their headers
//   TfpipeImageBytes  the first bytes of images, for TensorFlow's own ops
#ifndef TFPIPE_NATIVE_IMAGE_OPS_H_
#define TFPIPE_NATIVE_IMAGE_OPS_H_

#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/variant.h"

#include "decoder.h"
#include "example.h"
#include "read_ops.h"

namespace tfpipe {
namespace {

// Returns the bytes of an image: a string, or the tensor of TfpipeReadRecords. None if
// the variant is another one.
Span ImageAt(const Tensor& encoded, int64_t i) {
  const uint8_t* bytes;
  size_t size;
  if (encoded.dtype() == tensorflow::DT_STRING) {
    const auto& text = encoded.flat<tensorflow::tstring>()(i);
    bytes = reinterpret_cast<const uint8_t*>(text.data());
    size = text.size();
  } else {
    const auto* part = encoded.flat<tensorflow::Variant>()(i).get<Tensor>();
    if (part == nullptr || part->dtype() != tensorflow::DT_UINT8) return {};
    bytes = BytesOf(*part);
    size = static_cast<size_t>(part->NumElements());
  }
  return {bytes, bytes + size};
}

REGISTER_OP("TfpipeJpegSizes")
    .Input("encoded: variant")
    .Output("sizes: int32")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(
          context->Concatenate(context->input(0), context->Vector(2), &shape));
      context->set_output(0, shape);
      return Status();
    });

// The sides of an image that is no JPEG, or has no sound header, are 0.
class JpegSizesOp : public tensorflow::OpKernel {
 public:
  explicit JpegSizesOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& encoded = context->input(0);
    TensorShape shape = encoded.shape();
    shape.AddDim(2);
    Tensor* sizes;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &sizes));
    int32_t* sides = sizes->flat<int32_t>().data();
    for (int64_t i = 0; i < encoded.NumElements(); ++i, sides += 2) {
      const Span image = ImageAt(encoded, i);
      char message[kMessageLength];
      if (!ReadSides(image.begin, image.size(), sides, sides + 1, message))
        sides[0] = sides[1] = 0;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeJpegSizes").Device(tensorflow::DEVICE_CPU),
                        JpegSizesOp);

REGISTER_OP("TfpipeImageBytes")
    .Input("encoded: variant")
    .Output("content: string")
    .Attr("most: int >= 0")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// All bytes of an image that has no more than `most`.
class ImageBytesOp : public tensorflow::OpKernel {
 public:
  explicit ImageBytesOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("most", &most_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& encoded = context->input(0);
    Tensor* content;
    OP_REQUIRES_OK(context, context->allocate_output(0, encoded.shape(), &content));
    for (int64_t i = 0; i < encoded.NumElements(); ++i) {
      const Span image = ImageAt(encoded, i);
      content->flat<tensorflow::tstring>()(i).assign(
          reinterpret_cast<const char*>(image.begin),
          std::min(image.size(), static_cast<size_t>(most_)));
    }
  }

 private:
  int64_t most_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeImageBytes").Device(tensorflow::DEVICE_CPU),
                        ImageBytesOp);

}  // namespace
}  // namespace tfpipe

#endif
