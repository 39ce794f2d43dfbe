/* The protected loss on a CPU: every row in one go, in memory that its core keeps close.

   The mathematics is said in tpkd_fast.py, which has the same algorithm as tensor code for everything else. A row is
   copied into scratch memory, its label and what fills it up to whole vectors as -inf: exponentials make zeros of both,
   and no loop below has to know of them. Loops are plain; the compiler vectorises them for each kind of processor.
   Sums are taken in float over CHUNK numbers, so few that equal roundings cannot add up, and in double over chunks. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
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

#define LANES 64 /* scratch rows are whole multiples of this */
#define CHUNK 128
#define LOG2_E 1.4426950408889634f

enum dtype { FLOAT32, BFLOAT16, FLOAT16 };

struct logits {
    char *data;
    Py_ssize_t row_bytes;
    int dtype;
};

struct batch {
    struct logits student, teacher, gradient; /* gradient.data may be NULL, or that of the student */
    const int64_t *labels; /* our own copy */
    const char *valid; /* NULL where all rows are */
    float *losses, *scratch;
    Py_ssize_t rows, classes, width; /* width: classes rounded up to LANES */
    double beta, weight;
};

INLINE float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

INLINE uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INLINE float from_half(uint16_t half) {
    uint32_t rest = half & 0x7fff, sign = (uint32_t)(half & 0x8000) << 16;
    float subnormal = (float)rest * 0x1p-24f;
    uint32_t normal = (rest << 13) + (112 << 23), other = rest << 13 | 0x7f800000; /* other: inf and nan */
    uint32_t magnitude = rest < 0x400 ? bits_of(subnormal) : rest < 0x7c00 ? normal : other;
    return float_of(magnitude | sign);
}

INLINE uint16_t to_bfloat(float number) {
    uint32_t bits = bits_of(number), even = bits >> 16 & 1;
    return number != number ? 0x7fc0 : (uint16_t)((bits + 0x7fff + even) >> 16);
}

/* 2^x for x <= 0, within 1.2e-7 of itself; 0 below 2^-125, where numbers cease to be normal; nan for nan. */
INLINE float power_of_two(float x) {
    const float rounder = 0x1.8p23f; /* a number so large that the sum has no room for a fraction */
    float shifted = x + rounder, f = x - (shifted - rounder);
    float scale = float_of((bits_of(shifted) + 127) << 23);
    float p = 1.535336188319500e-4f; /* the polynomial nearest on [-1/2, 1/2], 2e-9 away at most */
    p = p * f + 1.339887440266574e-3f;
    p = p * f + 9.618437357674640e-3f;
    p = p * f + 5.550332471162809e-2f;
    p = p * f + 2.402264791363012e-1f;
    p = p * f + 6.931472028550421e-1f;
    p = p * f + 1.0f;
    return x < -125.0f ? 0.0f : p * scale;
}

/* Tensors made from a buffer may begin at an odd address. */
INLINE uint16_t half_at(const char *data, Py_ssize_t j) {
    uint16_t half;
    memcpy(&half, data + j * (Py_ssize_t)sizeof half, sizeof half);
    return half;
}

INLINE void load(float *restrict row, struct logits from, Py_ssize_t number, Py_ssize_t classes, Py_ssize_t width) {
    const char *data = from.data + number * from.row_bytes;
    if (from.dtype == FLOAT32) {
        memcpy(row, data, classes * sizeof(float));
    } else {
        if (from.dtype == BFLOAT16)
            for (Py_ssize_t j = 0; j < classes; j++) row[j] = float_of((uint32_t)half_at(data, j) << 16);
        else
            for (Py_ssize_t j = 0; j < classes; j++) row[j] = from_half(half_at(data, j));
    }
    for (Py_ssize_t j = classes; j < width; j++) row[j] = -INFINITY;
}

INLINE float largest(const float *row, Py_ssize_t width) {
    float most = -INFINITY;
    VECTORISED(reduction(max : most))
    for (Py_ssize_t j = 0; j < width; j++) most = row[j] > most ? row[j] : most;
    return most;
}

/* Newton's steps from an upper bound of the root of sum_j min(u_j - zeta, 0) = zeta down to the root. */
INLINE float descend(const float *u, Py_ssize_t count, float zeta) {
    for (;;) {
        double sum = 0, active = 0;
        for (Py_ssize_t start = 0; start < count; start += CHUNK) {
            Py_ssize_t end = start + CHUNK < count ? start + CHUNK : count;
            float part = 0, number = 0;
            VECTORISED(reduction(+ : part, number))
            for (Py_ssize_t j = start; j < end; j++) {
                part += u[j] < zeta ? u[j] : 0.0f;
                number += u[j] < zeta ? 1.0f : 0.0f;
            }
            sum += part;
            active += number;
        }
        float next = (float)(sum / (active + 1));
        if (!(next < zeta)) return zeta;
        zeta = next;
    }
}

/* The loss of one row; and its weighted direction, where one is wanted. */
FOR_EACH_PROCESSOR
static double row_loss(const struct batch *batch, Py_ssize_t number, float *restrict s, float *restrict t) {
    /* The mask changes nothing but what the compiler knows: that no loop has a remainder. */
    Py_ssize_t width = batch->width & -LANES, classes = batch->classes, label = batch->labels[number];
    load(s, batch->student, number, classes, width);
    load(t, batch->teacher, number, classes, width);
    double label_logit = s[label];
    s[label] = t[label] = -INFINITY;
    float most_s = largest(s, width), most_t = largest(t, width);

    double sum_s = 0, sum_t = 0, expected = 0; /* of e_s, of e_t, and of e_t times the log-ratio to e_s */
    for (Py_ssize_t start = 0; start < width; start += CHUNK) {
        Py_ssize_t end = start + CHUNK < width ? start + CHUNK : width;
        float part_s = 0, part_t = 0, part = 0;
        VECTORISED(reduction(+ : part_s, part_t, part))
        for (Py_ssize_t j = start; j < end; j++) {
            /* Differences first: they are exact under any common shift. */
            float behind_s = s[j] - most_s, behind_t = t[j] - most_t;
            float e_s = power_of_two(behind_s * LOG2_E), e_t = power_of_two(behind_t * LOG2_E);
            s[j] = e_s;
            t[j] = e_t;
            part_s += e_s;
            part_t += e_t;
            part += e_t == 0 ? 0 : e_t * (behind_t - behind_s);
        }
        sum_s += part_s;
        sum_t += part_t;
        expected += part;
    }
    double ratio = sum_s / sum_t, conditional = log(ratio) + expected / sum_t;
    double lag = log(sum_s) + (most_s - label_logit); /* log(1 - rho) - log(rho) */
    double label_loss = lag > 0 ? lag + log1p(exp(-lag)) : log1p(exp(lag));
    double loss = label_loss + batch->beta * (conditional < 0 ? 0 : conditional);
    if (!batch->gradient.data) return loss;

    /* u = r - q and its root, both times the sum of e_s; equal logits have equal sums, and a u of exactly 0. */
    float teacher_scale = (float)ratio, least[LANES] = {0};
    for (Py_ssize_t start = 0; start < width; start += LANES)
        for (Py_ssize_t lane = 0; lane < LANES; lane++) {
            float u = s[start + lane] - teacher_scale * t[start + lane];
            t[start + lane] = u;
            least[lane] = u < least[lane] ? u : least[lane];
        }
    /* Any set of classes bounds the root from above, and one class of each lane bounds it well. */
    float zeta = descend(t, width, descend(least, LANES, 0));

    double residual = batch->weight / (1 + exp(-lag));
    float on_label = (float)(residual / sum_s), on_teacher = (float)(batch->beta * batch->weight / sum_s);
    float at_label = (float)((double)on_teacher * zeta - residual);
    char *row = batch->gradient.data + number * batch->gradient.row_bytes;
    if (ratio != ratio) at_label = NAN;
    /* max(u, zeta) in this order lets a nan through. */
    if (batch->gradient.dtype == FLOAT32) {
        float *v = (float *)row;
        for (Py_ssize_t j = 0; j < classes; j++) v[j] = on_label * s[j] + on_teacher * (t[j] < zeta ? zeta : t[j]);
        v[label] = at_label;
    } else {
        uint16_t *v = (uint16_t *)row;
        for (Py_ssize_t j = 0; j < classes; j++)
            v[j] = to_bfloat(on_label * s[j] + on_teacher * (t[j] < zeta ? zeta : t[j]));
        v[label] = to_bfloat(at_label);
    }
    return loss;
}

static void all_rows(const struct batch *batch, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (Py_ssize_t number = 0; number < batch->rows; number++) {
        int thread = 0;
#ifdef _OPENMP
        thread = omp_get_thread_num();
#endif
        double loss = 0;
        if (batch->valid && !batch->valid[number]) {
            const struct logits *gradient = &batch->gradient;
            if (gradient->data)
                memset(gradient->data + number * gradient->row_bytes, 0,
                       batch->classes * (gradient->dtype == FLOAT32 ? sizeof(float) : sizeof(uint16_t)));
        } else {
            float *s = batch->scratch + 2 * thread * batch->width;
            loss = row_loss(batch, number, s, s + batch->width);
        }
        batch->losses[number] = (float)loss;
    }
}

/* A copy of the labels, checked, or NULL with an exception. In a compiled graph nothing else checks them; and other
   threads may write to the caller's memory while this runs, so what is checked and used is the copy. Rows that are not
   valid have label 0. */
static int64_t *checked_labels(const void *labels, Py_ssize_t rows, Py_ssize_t classes) {
    int64_t *copy = PyMem_Malloc((rows ? rows : 1) * sizeof *copy);
    if (!copy) return (int64_t *)PyErr_NoMemory();
    if (rows) memcpy(copy, labels, rows * sizeof *copy); /* an empty tensor may have no address */
    for (Py_ssize_t number = 0; number < rows; number++) {
        int64_t label = copy[number];
        if (label >= 0 && label < classes) continue;
        PyMem_Free(copy);
        PyErr_Format(PyExc_ValueError,
                     "labels: expected class indices from 0 to %zd or ignore_index, got %lld at position %zd",
                     classes - 1, (long long)label, number);
        return NULL;
    }
    return copy;
}

/* Takes addresses as numbers, of memory that tpkd_kernel.py has checked and holds. */
static PyObject *losses_and_directions(PyObject *Py_UNUSED(module), PyObject *args) {
    struct batch batch;
    Py_ssize_t student, teacher, gradient, labels, valid, losses, scratch;
    int threads;
    if (!PyArg_ParseTuple(args, "(nni)(nni)(nni)nnnnnnddi", &student, &batch.student.row_bytes, &batch.student.dtype,
                          &teacher, &batch.teacher.row_bytes, &batch.teacher.dtype, &gradient,
                          &batch.gradient.row_bytes, &batch.gradient.dtype, &labels, &valid, &losses, &scratch,
                          &batch.rows, &batch.classes, &batch.beta, &batch.weight, &threads))
        return NULL;
    batch.student.data = (char *)student;
    batch.teacher.data = (char *)teacher;
    batch.gradient.data = (char *)gradient;
    batch.valid = (const char *)valid;
    batch.losses = (float *)losses;
    batch.scratch = (float *)scratch;
    batch.width = (batch.classes + LANES - 1) & -LANES;
    int64_t *copy = checked_labels((const void *)labels, batch.rows, batch.classes);
    if (!copy) return NULL;
    batch.labels = copy;
    double total = 0;
    Py_BEGIN_ALLOW_THREADS
    all_rows(&batch, threads);
    /* In one order, however many threads there were. */
    for (Py_ssize_t number = 0; number < batch.rows; number++) total += batch.losses[number];
    Py_END_ALLOW_THREADS
    PyMem_Free(copy);
    return PyFloat_FromDouble((float)(total * batch.weight));
}

static PyMethodDef methods[] = {
    {"losses_and_directions", losses_and_directions, METH_VARARGS,
     "Write losses and directions of a batch; return the weighted sum of the losses."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "LANES", LANES) < 0) Py_CLEAR(module);
    return module;
}
