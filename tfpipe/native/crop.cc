// The op TfpipeCrop: tfpipe.crop.crop_image as one kernel. See crop_core.h.
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

#include "crop_core.h"

namespace tfpipe {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorShapeUtils;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// TensorFlow 2.16 to 2.21 do not agree on what a shape function's result is called.
using Status = decltype(InvalidArgument(""));

Status SetShape(InferenceContext* context) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 0, &unused));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &unused));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 0, &unused));
  int size;
  std::string layout;
  TF_RETURN_IF_ERROR(context->GetAttr("image_size", &size));
  TF_RETURN_IF_ERROR(context->GetAttr("layout", &layout));
  context->set_output(0, layout == "NCHW" ? context->MakeShape({3, size, size})
                                          : context->MakeShape({size, size, 3}));
  return Status();
}

REGISTER_OP("TfpipeCrop")
    .Input("encoded: string")
    .Input("window: int32")
    .Input("flip: bool")
    .Output("image: dtype")
    .Attr("image_size: int >= 1")
    .Attr("quality: {'fast', 'exact'} = 'fast'")
    .Attr("dtype: {uint8, float, bfloat16} = DT_UINT8")
    .Attr("layout: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("bgr: bool = false")
    .Attr("scale: list(float) >= 3 = [1.0, 1.0, 1.0]")
    .Attr("offset: list(float) >= 3 = [0.0, 0.0, 0.0]")
    .SetShapeFn(SetShape);

// Rows are three values a pixel in int, so that no product overflows.
constexpr int kMaxImageSize = 1 << 14;

class CropOp : public tensorflow::OpKernel {
 public:
  explicit CropOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string quality, layout;
    tensorflow::DataType dtype;
    std::vector<float> scale, offset;
    OP_REQUIRES_OK(context, context->GetAttr("image_size", &format_.image_size));
    OP_REQUIRES_OK(context, context->GetAttr("quality", &quality));
    OP_REQUIRES_OK(context, context->GetAttr("dtype", &dtype));
    OP_REQUIRES_OK(context, context->GetAttr("layout", &layout));
    OP_REQUIRES_OK(context, context->GetAttr("bgr", &format_.bgr));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale));
    OP_REQUIRES_OK(context, context->GetAttr("offset", &offset));
    OP_REQUIRES(context, format_.image_size <= kMaxImageSize,
                InvalidArgument("image_size must be <= ", kMaxImageSize, ", got ",
                                format_.image_size, "."));
    OP_REQUIRES(context, scale.size() == 3 && offset.size() == 3,
                InvalidArgument("scale and offset must have 3 values, got ",
                                scale.size(), " and ", offset.size(), "."));
    format_.fast = quality == "fast";
    format_.plain = false;
    format_.planar = layout == "NCHW";
    format_.pixel = dtype == tensorflow::DT_UINT8   ? Pixel::kUint8
                    : dtype == tensorflow::DT_FLOAT ? Pixel::kFloat32
                                                    : Pixel::kBfloat16;
    std::copy(scale.begin(), scale.end(), format_.scale);
    std::copy(offset.begin(), offset.end(), format_.offset);
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &encoded = context->input(0), &window = context->input(1);
    OP_REQUIRES(context,
                TensorShapeUtils::IsScalar(encoded.shape()) &&
                    TensorShapeUtils::IsScalar(context->input(2).shape()) &&
                    window.shape() == TensorShape({4}),
                InvalidArgument("encoded and flip must be scalars and window [4], got ",
                                encoded.shape().DebugString(), ", ",
                                context->input(2).shape().DebugString(), " and ",
                                window.shape().DebugString(), "."));
    const int64_t size = format_.image_size;
    Tensor* image;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0,
                                format_.planar ? TensorShape({3, size, size})
                                               : TensorShape({size, size, 3}),
                                &image));
    const auto& bytes = encoded.scalar<tensorflow::tstring>()();
    const auto edges = window.vec<int32_t>();
    char message[kMessageLength];
    const bool done =
        Crop(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
             {edges(0), edges(1), edges(2), edges(3)}, context->input(2).scalar<bool>()(),
             format_, image->data(), message);
    OP_REQUIRES(context, done, InvalidArgument(message));
  }

 private:
  Format format_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeCrop").Device(tensorflow::DEVICE_CPU), CropOp);

}  // namespace
}  // namespace tfpipe
