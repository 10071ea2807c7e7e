// TfpipeRun: runs a function as it is, and another function where the first fails. See
// run.py.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"

#include "ops.h"

namespace tfpipe {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::OpRegistry;
using tensorflow::PartialTensorShape;

REGISTER_OP("TfpipeRun")
    .Input("values: Tin")
    .Input("captured: Tcaptured")
    .Output("results: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tcaptured: list(type) >= 0")
    .Attr("Tout: list(type)")
    .Attr("shapes: list(shape)")
    .Attr("functions: list(string) >= 1")
    .Attr("num_captured: list(int)")
    .Attr("library: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      std::vector<PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
      for (size_t i = 0; i < shapes.size(); ++i) {
        ShapeHandle shape;
        TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
        context->set_output(static_cast<int>(i), shape);
      }
      return Status();
    });

class RunOp : public tensorflow::AsyncOpKernel {
 public:
  explicit RunOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    std::string serialized;
    OP_REQUIRES_OK(context, context->GetAttr("functions", &names_));
    OP_REQUIRES_OK(context, context->GetAttr("num_captured", &num_captured_));
    OP_REQUIRES_OK(context, context->GetAttr("library", &serialized));
    tensorflow::FunctionDefLibrary functions;
    OP_REQUIRES(context, functions.ParseFromString(serialized),
                InvalidArgument("library must hold functions."));
    functions_ =
        std::make_unique<FunctionLibraryDefinition>(OpRegistry::Global(), functions);
  }

  ~RunOp() override {
    for (const auto& [key, handle] : handles_)
      key.first->ReleaseHandle(handle).IgnoreError();
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    RunFrom(0, context, std::move(done));
  }

 private:
  using Handle = FunctionLibraryRuntime::Handle;

  // Runs a function, and the next one if the function fails. Sets the outputs to the
  // results of the first function without a failure.
  void RunFrom(size_t index, OpKernelContext* context, DoneCallback done) {
    FunctionLibraryRuntime* const runtime = context->function_library();
    Handle handle;
    OP_REQUIRES_OK_ASYNC(context, Find(runtime, names_[index], &handle), done);
    // A failure cancels the ops of its own function alone. Copies of the callback
    // outlive `done`; the caller's manager may not, and a pool waits for its buffers.
    // So the callback keeps neither a manager nor results.
    auto* const manager =
        new tensorflow::CancellationManager(context->cancellation_manager());
    FunctionLibraryRuntime::Options options(context->step_id());
    options.cancellation_manager = manager;
    options.step_container = context->step_container();
    options.collective_executor = context->collective_executor();
    options.stats_collector = context->stats_collector();
    options.runner = context->runner();
    options.run_all_kernels_inline = context->run_all_kernels_inline();
    options.create_rendezvous = true;
    auto results = std::make_shared<std::vector<Tensor>>();
    runtime->Run(
        options, handle, Inputs(index, context), results.get(),
        [this, index, context, manager, results,
         done = std::move(done)](const Status& status) {
          delete manager;
          if (!status.ok() && index + 1 < names_.size() && !IsCancelled(context))
            return RunFrom(index + 1, context, done);
          OP_REQUIRES_OK_ASYNC(context, status, done);
          for (size_t i = 0; i < results->size(); ++i)
            context->set_output(static_cast<int>(i), std::move((*results)[i]));
          done();
        });
  }

  // Returns the values and what a function has captured.
  std::vector<Tensor> Inputs(size_t index, OpKernelContext* context) const {
    int64_t captured = context->num_inputs();
    for (const int64_t count : num_captured_) captured -= count;
    std::vector<Tensor> inputs;
    for (int64_t i = 0; i < captured; ++i) inputs.push_back(context->input(i));
    for (size_t other = 0; other < index; ++other) captured += num_captured_[other];
    for (int64_t i = 0; i < num_captured_[index]; ++i)
      inputs.push_back(context->input(captured + i));
    return inputs;
  }

  // A function is made at its first call.
  Status Find(FunctionLibraryRuntime* runtime, const std::string& name,
              Handle* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [entry, is_new] = handles_.try_emplace({runtime, name});
    if (is_new) {
      FunctionLibraryRuntime::InstantiateOptions options;
      // Without TensorFlow's single-threaded executor: it holds a thread of the pool
      // while the function waits, and a pool of two threads is soon full.
      options.lib_def = functions_.get();
      const Status status =
          runtime->Instantiate(name, tensorflow::AttrSlice(), options, &entry->second);
      if (!status.ok()) {
        handles_.erase(entry);
        return status;
      }
    }
    *handle = entry->second;
    return Status();
  }

  // Whether the reader of the dataset has gone: a failure then tells nothing.
  static bool IsCancelled(OpKernelContext* context) {
    auto* const manager = context->cancellation_manager();
    return manager != nullptr && manager->IsCancelled();
  }

  std::vector<std::string> names_;
  std::vector<int64_t> num_captured_;
  std::unique_ptr<FunctionLibraryDefinition> functions_;
  std::mutex mutex_;
  std::map<std::pair<FunctionLibraryRuntime*, std::string>, Handle> handles_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeRun").Device(tensorflow::DEVICE_CPU), RunOp);

}  // namespace
}  // namespace tfpipe
