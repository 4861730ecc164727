#ifndef PRISM_SRC_TARGETS_H_
#define PRISM_SRC_TARGETS_H_

#include <cstddef>

namespace prism {

// Where the target in use stands in the tables that HWY_EXPORT makes. Highway's own choice is one for the
// whole process; ours leaves other users of Highway alone.
std::size_t DispatchIndex();

}  // namespace prism

#endif  // PRISM_SRC_TARGETS_H_
