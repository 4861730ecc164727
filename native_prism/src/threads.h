#ifndef PRISM_SRC_THREADS_H_
#define PRISM_SRC_THREADS_H_

#include <cstdint>
#include <functional>

namespace prism {

// Calls `body(begin, end)` for pieces that together are 0 to `count`, on at most `threads` threads, the caller's
// own among them, each piece a multiple of `grain` long but for the last. Returns when all are done; what a piece
// throws is thrown here. Nested and concurrent calls are allowed. Every thread has the default floating-point
// environment meanwhile.
void ParallelFor(std::int64_t count, std::int64_t grain, int threads,
                 const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace prism

#endif  // PRISM_SRC_THREADS_H_
