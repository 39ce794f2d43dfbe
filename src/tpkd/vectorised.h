/* What both kernels begin with: loops that the compiler vectorises for each kind of processor. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#endif

#if !defined(BASELINE_PROCESSOR) && defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline)) /* into each of the clones */
#else
#define INLINE static inline
#endif

#define PRAGMA(text) _Pragma(#text)
#if defined(_MSC_VER)
#define VECTORISED(reduction) /* its compiler would let go of nan and inf */
#else
#define VECTORISED(reduction) PRAGMA(omp simd reduction)
#endif
