// From XLA's buffers to a batch of arenas, the same for both kinds of devices.
#pragma once

#include <string>

#include "arena.h"
#include "xla/ffi/api/ffi.h"

namespace echelon {

namespace ffi = xla::ffi;

// Fill `batch` from the arguments and results; an error says which one does not fit.
inline ffi::Error batch_of(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Span<const int32_t> numbers, double dt,
                           Batch& batch, int64_t& arenas) {
  size_t arg = 0, ret = 0, number = 0;
  auto fault = [](const char* name) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string("arguments of the simulation do not fit at ") + name);
  };
  auto row = [&](ffi::AnyBuffer buffer) { return static_cast<int32_t>(buffer.element_count() / (arenas > 0 ? arenas : 1)); };
#define FIELD(type, group, name)                                                                    \
  {                                                                                                 \
    auto in = args.get<ffi::AnyBuffer>(arg++);                                                      \
    auto out = rets.get<ffi::AnyBuffer>(ret++);                                                     \
    if (!in.has_value() || !out.has_value()) return fault(#group "." #name);                        \
    if (arg == 1) arenas = in->dimensions()[0];                                                     \
    if (in->untyped_data() != (*out)->untyped_data()) return fault(#group "." #name " (in place)"); \
    batch.group##_##name = static_cast<type*>((*out)->untyped_data());                              \
    batch.row_##group##_##name = row(*in);                                                          \
  }
  ECHELON_STATE(FIELD)
#undef FIELD
  int32_t all = 0;  // the row of an array that all arenas share is never used
#define READ(type, group, name, length)                                  \
  {                                                                      \
    auto in = args.get<ffi::AnyBuffer>(arg++);                           \
    if (!in.has_value()) return fault(#group "." #name);                 \
    batch.group##_##name = static_cast<const type*>(in->untyped_data()); \
    length = row(*in);                                                   \
  }
#define FIELD(type, group, name) READ(type, group, name, batch.row_##group##_##name)
  ECHELON_INPUT(FIELD)
#undef FIELD
#define FIELD(type, group, name) READ(type, group, name, all)
  ECHELON_SHARED(FIELD)
#undef FIELD
#undef READ
#define FIELD(name)                                        \
  {                                                        \
    if (number >= numbers.size()) return fault(#name);     \
    batch.n.name = numbers[number++];                      \
  }
  ECHELON_NUMBERS(FIELD)
#undef FIELD
  batch.n.dt = dt;
  return ffi::Error::Success();
}

}  // namespace echelon
