// The ops of tfpipe.native.record_op:
//
//   TfpipeReadRecords  reads records at known places, checks and parses them
//   TfpipeReadAhead    asks the kernel to read parts of files into memory
//
// An encoded image is a variant with a uint8 tensor, a part of the buffer into which all
// records of the batch were read. TfpipeCrop takes it without a copy.
#ifndef TFPIPE_NATIVE_READ_OPS_H_
#define TFPIPE_NATIVE_READ_OPS_H_

#include <map>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/variant.h"

#include "pool.h"
#include "record_file.h"

namespace tfpipe {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::DataLoss;
using tensorflow::errors::InvalidArgument;
using tensorflow::errors::ResourceExhausted;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// TensorFlow 2.16 to 2.21 do not agree on what a shape function's result is called.
using Status = decltype(InvalidArgument(""));

// The three inputs: paths, and two int64 for each.
struct Places {
  const tensorflow::tstring* path;
  const int64_t *begin, *second;
  int64_t count;
};

Status GetPlaces(OpKernelContext* context, Places* places) {
  const Tensor &path = context->input(0), &begin = context->input(1),
               &second = context->input(2);
  if (begin.shape() != path.shape() || second.shape() != path.shape()) {
    return InvalidArgument("The inputs must have one shape, got ",
                           path.shape().DebugString(), ", ", begin.shape().DebugString(),
                           " and ", second.shape().DebugString(), ".");
  }
  *places = {path.flat<tensorflow::tstring>().data(), begin.flat<int64_t>().data(),
             second.flat<int64_t>().data(), path.NumElements()};
  return Status();
}

// The files of a call, each looked up once.
class Files {
 public:
  const RecordFile& At(const tensorflow::tstring& path) {
    const std::string name(path.data(), path.size());
    SharedFile& file = files_[name];
    if (file == nullptr) file = OpenFiles::Get()->Find(name);
    return *file;
  }

 private:
  std::map<std::string, SharedFile> files_;
};

REGISTER_OP("TfpipeReadRecords")
    .Input("path: string")
    .Input("byte_offset: int64")
    .Input("num_bytes: int64")
    .Output("encoded: variant")
    .Output("numbers: int64")
    .Attr("image_key: string")
    .Attr("number_keys: list(string)")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle shape, numbers;
      TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &shape));
      TF_RETURN_IF_ERROR(context->Merge(shape, context->input(2), &shape));
      std::vector<std::string> keys;
      TF_RETURN_IF_ERROR(context->GetAttr("number_keys", &keys));
      const auto count = static_cast<int64_t>(keys.size());
      TF_RETURN_IF_ERROR(context->Concatenate(shape, context->Vector(count), &numbers));
      context->set_output(0, shape);
      context->set_output(1, numbers);
      return Status();
    });

class ReadRecordsOp : public tensorflow::OpKernel {
 public:
  explicit ReadRecordsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("image_key", &keys_.image));
    OP_REQUIRES_OK(context, context->GetAttr("number_keys", &keys_.numbers));
  }

  void Compute(OpKernelContext* context) override {
    Places places;
    OP_REQUIRES_OK(context, GetPlaces(context, &places));
    Files files;
    int64_t total = 0;
    for (int64_t i = 0; i < places.count; ++i) {
      const std::string fault = FindPlace(places, i, &files);
      OP_REQUIRES(context, fault.empty(), Fault(places, i, fault));
      total += places.second[i];
    }
    Tensor bytes(Pool::OfRecords(), tensorflow::DT_UINT8, TensorShape({total}));
    OP_REQUIRES(context, total == 0 || bytes.IsInitialized(),
                ResourceExhausted("No memory for ", total, " bytes of records."));
    Tensor *encoded, *numbers;
    TensorShape shape = context->input(0).shape();
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &encoded));
    shape.AddDim(static_cast<int64_t>(keys_.numbers.size()));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &numbers));
    auto* const buffer = static_cast<uint8_t*>(bytes.data());
    const auto num_keys = static_cast<int64_t>(keys_.numbers.size());
    for (int64_t i = 0, at = 0; i < places.count; at += places.second[i++]) {
      Span image;
      const std::string fault = ReadOne(places, i, &files, buffer + at, &image,
                                        numbers->flat<int64_t>().data() + i * num_keys);
      OP_REQUIRES(context, fault.empty(), Fault(places, i, fault));
      // A part of the tensor is not aligned, so that only its data() may be used.
      const int64_t begin = image.begin - buffer;
      encoded->flat<tensorflow::Variant>()(i) =
          bytes.Slice(begin, begin + static_cast<int64_t>(image.size()));
    }
  }

 private:
  // Checks that a record is within its file, before memory is taken for it.
  static std::string FindPlace(const Places& places, int64_t i, Files* files) {
    const RecordFile& file = files->At(places.path[i]);
    if (!file.is_open()) return std::string("it cannot be read: ") + file.error();
    const int64_t size = file.Size(), begin = places.begin[i], count = places.second[i];
    if (begin < 0 || count < kHeaderBytes + kFooterBytes || size < count ||
        begin > size - count) {
      return "its " + std::to_string(count) + " bytes must be within the file, which has " +
             std::to_string(size);
    }
    return "";
  }

  std::string ReadOne(const Places& places, int64_t i, Files* files, uint8_t* to,
                      Span* image, int64_t* numbers) const {
    Span data;
    const int64_t count = places.second[i];
    std::string fault = files->At(places.path[i]).Read(places.begin[i], count, to);
    if (fault.empty()) fault = CheckRecord(to, count, &data);
    if (fault.empty()) fault = ReadExample(data, keys_, image, numbers);
    return fault;
  }

  static Status Fault(const Places& places, int64_t i, const std::string& fault) {
    return DataLoss("The record at byte ", places.begin[i], " of ",
                    std::string(places.path[i]), ": ", fault, ".");
  }

  Keys keys_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeReadRecords").Device(tensorflow::DEVICE_CPU),
                        ReadRecordsOp);

REGISTER_OP("TfpipeReadAhead")
    .Input("path: string")
    .Input("begin: int64")
    .Input("end: int64")
    .Output("num_bytes: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// A file that cannot be opened is no error here: the op that reads it says so.
class ReadAheadOp : public tensorflow::OpKernel {
 public:
  explicit ReadAheadOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Places places;
    OP_REQUIRES_OK(context, GetPlaces(context, &places));
    Files files;
    int64_t total = 0;
    for (int64_t i = 0; i < places.count; ++i) {
      const RecordFile& file = files.At(places.path[i]);
      if (!file.is_open() || places.begin[i] < 0) continue;
      const int64_t end = std::min(places.second[i], file.Size());
      file.ReadAhead(places.begin[i], end);
      total += std::max<int64_t>(0, end - places.begin[i]);
    }
    Tensor* num_bytes;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &num_bytes));
    num_bytes->scalar<int64_t>()() = total;
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeReadAhead").Device(tensorflow::DEVICE_CPU),
                        ReadAheadOp);

}  // namespace
}  // namespace tfpipe

#endif
