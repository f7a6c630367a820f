// The simulation as a call of XLA on an NVIDIA card: one kernel, an arena on each thread.
#include "handler.h"
#include "simulate.h"

namespace echelon {

constexpr int THREADS = 32;  // of a block: few, so that some thousand arenas reach every multiprocessor

__global__ void simulate_arenas(Batch batch, int64_t arenas) {
  int64_t arena = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (arena < arenas) simulate(batch, arena);
}

static ffi::Error Simulate(cudaStream_t stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                           ffi::Span<const int32_t> numbers, double dt) {
  Batch batch;
  int64_t arenas = 0;
  ffi::Error error = batch_of(args, rets, numbers, dt, batch, arenas);
  if (error.failure()) return error;
  if (arenas == 0) return ffi::Error::Success();
  simulate_arenas<<<static_cast<unsigned>((arenas + THREADS - 1) / THREADS), THREADS, 0, stream>>>(batch, arenas);
  cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kInternal, cudaGetErrorString(status));
}

}  // namespace echelon

XLA_FFI_DEFINE_HANDLER_SYMBOL(EchelonSimulate, echelon::Simulate,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int32_t>>("numbers")
                                  .Attr<double>("dt"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
