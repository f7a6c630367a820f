// The simulation as a call of XLA on a CPU: arenas are shared out over the threads of XLA's pool.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "handler.h"
#include "simulate.h"

namespace echelon {

constexpr int64_t CHUNK = 16;  // arenas that a thread takes at a time

// What is left to do, and how many threads are at it.
struct Work {
  Batch batch;
  int64_t arenas;
  std::atomic<int64_t> next{0};
  int64_t done = 0;
  std::mutex mutex;
  std::condition_variable all_done;

  void help() {
    int64_t finished = 0;
    for (int64_t first; (first = next.fetch_add(CHUNK)) < arenas;) {
      int64_t end = std::min(first + CHUNK, arenas);
      for (int64_t arena = first; arena < end; ++arena) simulate(batch, arena);
      finished += end - first;
    }
    if (finished == 0) return;
    std::lock_guard<std::mutex> lock(mutex);
    done += finished;
    if (done == arenas) all_done.notify_all();
  }
};

static ffi::Error Simulate(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                           ffi::Span<const int32_t> numbers, double dt) {
  // Shared with helpers that the pool may start only after everything is done.
  auto work = std::make_shared<Work>();
  ffi::Error error = batch_of(args, rets, numbers, dt, work->batch, work->arenas);
  if (error.failure()) return error;
  int64_t helpers = std::min<int64_t>(pool.num_threads(), (work->arenas + CHUNK - 1) / CHUNK) - 1;
  for (int64_t helper = 0; helper < helpers; ++helper) pool.Schedule([work] { work->help(); });
  work->help();  // this thread never waits for work that nobody has begun
  std::unique_lock<std::mutex> lock(work->mutex);
  work->all_done.wait(lock, [&] { return work->done == work->arenas; });
  return ffi::Error::Success();
}

}  // namespace echelon

XLA_FFI_DEFINE_HANDLER_SYMBOL(EchelonSimulate, echelon::Simulate,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int32_t>>("numbers")
                                  .Attr<double>("dt"));
