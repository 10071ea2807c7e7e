// The ops of tfpipe.ops.crop, for an example or for a batch of examples:
//
//   TfpipeCrop          crop_image, see crop_core.h
//   TfpipeRandomWindow  the crop boxes of RandomCrop, see draw.h
//   TfpipeUniform       tf.random.stateless_uniform with a seed for each example
//   TfpipeEntryPoints   the tables of records, see entry_file.h
//
// build.py compiles record_ops.cc together with this file.
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/core/util/work_sharder.h"

#include "crop_core.h"
#include "draw.h"
#include "entry_file.h"
#include "ops.h"
#include "pool.h"

namespace tfpipe {
namespace {

// Returns the shape of `batch` with `sizes` appended.
TensorShape Each(TensorShape batch, const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) batch.AddDim(size);
  return batch;
}

// Sets the output shape to `batch` with `sizes` appended, while a graph is made.
Status SetEach(InferenceContext* context, ShapeHandle batch,
               const std::vector<int64_t>& sizes) {
  ShapeHandle shape = context->Scalar();
  for (const int64_t size : sizes)
    TF_RETURN_IF_ERROR(context->Concatenate(shape, context->Vector(size), &shape));
  TF_RETURN_IF_ERROR(context->Concatenate(batch, shape, &shape));
  context->set_output(0, shape);
  return Status();
}

// Checks that an input has the shape of `batch` with `size` appended.
Status RequireEach(InferenceContext* context, int input, ShapeHandle batch, int size) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(context->Concatenate(batch, context->Vector(size), &shape));
  return context->Merge(context->input(input), shape, &shape);
}

std::vector<int64_t> ImageShape(bool planar, int64_t height, int64_t width) {
  if (planar) return {3, height, width};
  return {height, width, 3};
}

Status SetImageShape(InferenceContext* context) {
  ShapeHandle batch;
  TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(2), &batch));
  TF_RETURN_IF_ERROR(RequireEach(context, 1, batch, 4));
  for (int i = 3; i < context->num_inputs(); ++i)
    TF_RETURN_IF_ERROR(context->Merge(context->input(i), batch, &batch));
  int height, width;
  std::string layout;
  TF_RETURN_IF_ERROR(context->GetAttr("height", &height));
  TF_RETURN_IF_ERROR(context->GetAttr("width", &width));
  TF_RETURN_IF_ERROR(context->GetAttr("layout", &layout));
  return SetEach(context, batch, ImageShape(layout == "NCHW", height, width));
}

REGISTER_OP("TfpipeCrop")
    .Input("encoded: T")
    .Input("window: int32")
    .Input("flip: bool")
    .Input("entry_points: num_entry_points * string")
    .Output("image: dtype")
    .Attr("T: {string, variant} = DT_STRING")
    .Attr("num_entry_points: int >= 0 = 0")
    .Attr("height: int >= 1")
    .Attr("width: int >= 1")
    .Attr("quality: {'fast', 'exact'} = 'fast'")
    .Attr("dtype: {uint8, float, bfloat16} = DT_UINT8")
    .Attr("layout: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("bgr: bool = false")
    .Attr("scale: list(float) >= 3 = [1.0, 1.0, 1.0]")
    .Attr("offset: list(float) >= 3 = [0.0, 0.0, 0.0]")
    .SetShapeFn(SetImageShape);

// A row has three values a pixel, counted in int: no product may overflow.
constexpr int kMaxImageSize = 1 << 14;

// Approximate cost of an image: large enough for a thread to each image.
constexpr int64_t kCropCycles = 1 << 21;

// The first image of a batch that failed.
struct Failure {
  std::mutex mutex;
  int64_t index = -1;
  std::string message;

  void Add(int64_t new_index, const char* new_message) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (index >= 0 && index < new_index) return;
    index = new_index;
    message = new_message;
  }
};

class CropOp : public tensorflow::OpKernel {
 public:
  explicit CropOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string quality, layout;
    tensorflow::DataType dtype;
    std::vector<float> scale, offset;
    OP_REQUIRES_OK(context, context->GetAttr("height", &format_.height));
    OP_REQUIRES_OK(context, context->GetAttr("width", &format_.width));
    OP_REQUIRES_OK(context, context->GetAttr("quality", &quality));
    OP_REQUIRES_OK(context, context->GetAttr("dtype", &dtype));
    OP_REQUIRES_OK(context, context->GetAttr("layout", &layout));
    OP_REQUIRES_OK(context, context->GetAttr("bgr", &format_.bgr));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale));
    OP_REQUIRES_OK(context, context->GetAttr("offset", &offset));
    OP_REQUIRES(context, std::max(format_.height, format_.width) <= kMaxImageSize,
                InvalidArgument("height and width must be <= ", kMaxImageSize, ", got ",
                                format_.height, " and ", format_.width, "."));
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
    const Tensor &encoded = context->input(0), &box = context->input(1),
                 &flip = context->input(2);
    const TensorShape& batch = encoded.shape();
    OP_REQUIRES(
        context, flip.shape() == batch && box.shape() == Each(batch, {4}),
        InvalidArgument("flip must have the shape of encoded, and window that and [4], "
                        "got ",
                        encoded.shape().DebugString(), ", ", flip.shape().DebugString(),
                        " and ", box.shape().DebugString(), "."));
    const Tensor* tables = context->num_inputs() > 3 ? &context->input(3) : nullptr;
    OP_REQUIRES(
        context, tables == nullptr || tables->shape() == batch,
        InvalidArgument("entry_points must have the shape of encoded, got ",
                        context->input(context->num_inputs() - 1).shape().DebugString(),
                        " and ", batch.DebugString(), "."));
    const TensorShape shape =
        Each(batch, ImageShape(format_.planar, format_.height, format_.width));
    Tensor image;
    if (batch.dims() > 0) {
      image = Tensor(Pool::OfImages(), output_type(0), shape);
      OP_REQUIRES(context, image.IsInitialized(),
                  ResourceExhausted("No memory for ", shape.DebugString(), "."));
    } else {
      OP_REQUIRES_OK(context, context->allocate_temp(output_type(0), shape, &image));
    }
    Failure failure;
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    // Runs in the calling thread alone for a single image, or if
    // Tuning.max_intra_op_parallelism is 1.
    tensorflow::Shard(workers->num_threads, workers->workers, batch.num_elements(),
                      kCropCycles, [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i)
                          CropOne(encoded, box, flip, tables, i, &image, &failure);
                      });
    OP_REQUIRES(context, failure.index < 0,
                InvalidArgument(
                    batch.dims() == 0
                        ? ""
                        : "Image " + std::to_string(failure.index) + " of the batch: ",
                    failure.message));
    context->set_output(0, image);
  }

 private:
  void CropOne(const Tensor& encoded, const Tensor& box, const Tensor& flip,
               const Tensor* tables, int64_t i, Tensor* image, Failure* failure) const {
    const Span jpeg = ImageAt(encoded, i);
    Source source = {jpeg.begin, jpeg.size(), nullptr, 0};
    if (tables != nullptr) {
      const auto& table = tables->flat<tensorflow::tstring>()(i);
      source.table = BytesOf(table);
      source.table_size = table.size();
    }
    const int32_t* edges = box.flat<int32_t>().data() + 4 * i;
    char* pixels = static_cast<char*>(image->data()) +
                   i * (image->TotalBytes() / encoded.NumElements());
    char message[kMessageLength];
    if (!Crop(source, {edges[0], edges[1], edges[2], edges[3]}, flip.flat<bool>()(i),
              format_, pixels, message)) {
      failure->Add(i, message);
    }
  }

  Format format_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeCrop").Device(tensorflow::DEVICE_CPU), CropOp);

REGISTER_OP("TfpipeRandomWindow")
    .Input("height: int32")
    .Input("width: int32")
    .Input("seed: int64")
    .Output("window: int32")
    .Attr("area: list(float) >= 2")
    .Attr("ratio: list(float) >= 2")
    .Attr("max_attempts: int >= 1")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle batch;
      TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &batch));
      TF_RETURN_IF_ERROR(RequireEach(context, 2, batch, 2));
      return SetEach(context, batch, {4});
    });

class RandomWindowOp : public tensorflow::OpKernel {
 public:
  explicit RandomWindowOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<float> area, ratio;
    OP_REQUIRES_OK(context, context->GetAttr("area", &area));
    OP_REQUIRES_OK(context, context->GetAttr("ratio", &ratio));
    OP_REQUIRES_OK(context, context->GetAttr("max_attempts", &range_.max_attempts));
    range_ = {{area[0], area[1]}, {ratio[0], ratio[1]}, range_.max_attempts};
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &height = context->input(0), &width = context->input(1),
                 &seed = context->input(2);
    const TensorShape& batch = height.shape();
    OP_REQUIRES(
        context, width.shape() == batch && seed.shape() == Each(batch, {2}),
        InvalidArgument("width must have the shape of height, and seed that and "
                        "[2], got ",
                        batch.DebugString(), ", ", width.shape().DebugString(), " and ",
                        seed.shape().DebugString(), "."));
    Tensor* boxes;
    OP_REQUIRES_OK(context, context->allocate_output(0, Each(batch, {4}), &boxes));
    for (int64_t i = 0; i < height.NumElements(); ++i) {
      Draws draws(seed.flat<int64_t>().data() + 2 * i);
      const CropBox box = DrawCropBox(height.flat<int32_t>()(i),
                                      width.flat<int32_t>()(i), range_, &draws);
      int32_t* edges = boxes->flat<int32_t>().data() + 4 * i;
      edges[0] = box.top;
      edges[1] = box.left;
      edges[2] = box.height;
      edges[3] = box.width;
    }
  }

 private:
  Range range_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeRandomWindow").Device(tensorflow::DEVICE_CPU),
                        RandomWindowOp);

REGISTER_OP("TfpipeUniform")
    .Input("seed: int64")
    .Output("drawn: float")
    .Attr("count: int >= 1")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle batch;
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 1, &batch));
      TF_RETURN_IF_ERROR(context->Subshape(batch, 0, -1, &batch));
      TF_RETURN_IF_ERROR(RequireEach(context, 0, batch, 2));
      int count;
      TF_RETURN_IF_ERROR(context->GetAttr("count", &count));
      return SetEach(context, batch, {count});
    });

class UniformOp : public tensorflow::OpKernel {
 public:
  explicit UniformOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("count", &count_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& seed = context->input(0);
    TensorShape shape = seed.shape();
    OP_REQUIRES(
        context, shape.dims() > 0 && shape.dim_size(shape.dims() - 1) == 2,
        InvalidArgument("seed must be [..., 2], got ", shape.DebugString(), "."));
    shape.set_dim(shape.dims() - 1, count_);
    Tensor* drawn;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &drawn));
    float* to = drawn->flat<float>().data();
    for (int64_t i = 0; i < seed.NumElements(); i += 2) {
      Draws draws(seed.flat<int64_t>().data() + i);
      for (int j = 0; j < count_; ++j) *to++ = draws.Share();
    }
  }

 private:
  int count_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeUniform").Device(tensorflow::DEVICE_CPU),
                        UniformOp);

REGISTER_OP("TfpipeEntryPoints")
    .Input("record_id: int64")
    .Output("entry_points: string")
    .Attr("path: string")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// Gives a record without a table an empty table. The crop op then decodes without entry
// points.
class EntryPointsOp : public tensorflow::OpKernel {
 public:
  explicit EntryPointsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("path", &path_));
    const OpenFiles::Use file = OpenFiles::Get()->Open(path_);
    const EntryFile entries(file);
    const int error = entries.error();
    OP_REQUIRES(context, error == 0 || error == ENOENT || error == EISDIR,
                HostError(path_, error));
    OP_REQUIRES(context, entries.has_head(),
                tensorflow::errors::NotFound(
                    path_,
                    " must be a file of entry points that can be read. Make it "
                    "again: python -m converters.verify DIR --write_entry_points"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& records = context->input(0);
    Tensor* tables;
    OP_REQUIRES_OK(context, context->allocate_output(0, records.shape(), &tables));
    const OpenFiles::Use file = OpenFiles::Get()->Open(path_);
    const EntryFile entries(file);
    for (int64_t i = 0; i < records.NumElements(); ++i) {
      auto& table = tables->flat<tensorflow::tstring>()(i);
      const EntryFile::Range range = entries.Find(records.flat<int64_t>()(i));
      table.resize_uninitialized(range.size);
      if (!entries.Read(range, table.mdata())) table.resize(0);
    }
  }

 private:
  std::string path_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeEntryPoints").Device(tensorflow::DEVICE_CPU),
                        EntryPointsOp);

}  // namespace
}  // namespace tfpipe
