// Which of Highway's targets are built. To be included before any Highway header.

#ifndef PRISM_SRC_CONFIG_H_
#define PRISM_SRC_CONFIG_H_

// The scalar target stays in: it is the reference that the others are tested against.
#define HWY_COMPILE_ALL_ATTAINABLE
// 512-bit AES, where the CPU has it.
#define HWY_WANT_AVX3_DL
// Vectors of unknown length cannot be kept in arrays, as the kernels do; these CPUs have NEON too.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // PRISM_SRC_CONFIG_H_
