// Which of Highway's targets are built. To be included before any Highway header.

#ifndef PRISM_SRC_CONFIG_H_
#define PRISM_SRC_CONFIG_H_

// The scalar target stays in: it is the reference that the others are tested against.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_BROKEN_EMU128 1
// 512-bit AES, where the CPU has it.
#define HWY_WANT_AVX3_DL
// Every operation here needs a fused multiply-add, which x86 has from AVX2 on. Vectors of unknown length cannot be
// kept in arrays, as the kernels do; the CPUs that have them have NEON too.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | PRISM_DISABLED_SSE2)
#ifdef HWY_SSE2
#define PRISM_DISABLED_SSE2 HWY_SSE2
#else
#define PRISM_DISABLED_SSE2 0
#endif

#endif  // PRISM_SRC_CONFIG_H_
