/* The diagnosis of rows on a CPU: both networks of an example in one go, in memory that its core keeps close.

   This is a twin of `diagnose_pair` in ../theory/diagnosis.py, which defines every number, for the part of it that is
   as long as a row. What is left, one number per row, is finished by rows.py with the functions of the definition.
   Rows are in double whatever the file holds. Loops are plain; the compiler vectorises them for each kind of processor.

   The label, and what fills a row up to whole vectors, are given the logits of another class: they change no largest
   or least value; and their exponentials are set to zero: they add to no sum.

   Every row is computed alone, and cells of the tables are summed in the order of the rows: no result depends on the
   number of threads. */

#include "../vectorised.h"
#include <float.h>

#define LANES 8 /* rows of scratch memory are whole multiples of this */
#define TABLES 3 /* of class pairs: what is left to learn, the teacher's share, the student's share */
#define HELD_BYTES ((Py_ssize_t)1 << 20) /* of rows that wait to be added to the tables: they stay in the cache */
#define ROUNDINGS 8 /* as in geometry/directions.py, `_equal_up_to_rounding` */
#define TINY_SQUARES 1e-280 /* a sum of squares below this may have lost digits to underflow */

/* What is found of each row, a column each. Those about u are of `SCALE` times it. */
enum column {
    LEAD_STUDENT, /* the label's logit over the largest of the others */
    LOG_STUDENT, /* log of the sum of exponentials of the others, relative to the largest of them */
    LEAD_TEACHER,
    LOG_TEACHER,
    HIGHEST, /* max and min of c_j = log(q_j / r_j) */
    LOWEST,
    LEFT, /* sum of q_j c_j */
    THRESHOLD, /* zeta */
    R_R, /* inner products of r, u and s = max(u, zeta) over the incorrect classes */
    R_U,
    R_S,
    U_U,
    U_S,
    S_S,
    SCALE,
    ANSWER_STUDENT, /* the most probable class, of equal ones the first */
    ANSWER_TEACHER,
    COLUMNS
};

struct logits {
    const char *data;
    Py_ssize_t row_bytes;
    int is_double;
};

struct batch {
    struct logits student, teacher;
    const int64_t *labels;
    double *found; /* COLUMNS x rows */
    double *tables; /* TABLES x classes x classes, or NULL */
    double *scratch;
    Py_ssize_t rows, classes, width, held; /* width: classes rounded up to LANES; held: rows between two additions */
};

/* What one row is worked on in. */
struct room {
    double *r, *q, *left, *u;
};

/* e^x for x <= 0, within a unit in the last place; 0 below the least normal number; nan for nan. */
INLINE double exponential(double x) {
    const double rounder = 0x1.8p52; /* a number so large that the sum has no room for a fraction */
    double shifted = x * 0x1.71547652b82fep+0 + rounder, n = shifted - rounder, scale;
    double f = (x - n * 0x1.62e42fefa2p-1) - n * 0x1.9ef35793c7673p-41; /* log 2 in two parts: the first is exact */
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&scale, &bits, sizeof scale);
    double p = 2.5100375832561234e-8; /* (e^f - 1 - f) / f^2 on [-log(2) / 2, log(2) / 2]: e^f is 2e-17 away at most */
    p = p * f + 2.7620075879983367e-7;
    p = p * f + 2.7557268480310024e-6;
    p = p * f + 2.4801521322368692e-5;
    p = p * f + 1.9841269863040545e-4;
    p = p * f + 1.3888888917196719e-3;
    p = p * f + 8.333333333330065e-3;
    p = p * f + 4.1666666666624164e-2;
    p = p * f + 1.6666666666666669e-1;
    p = p * f + 5.0000000000000011e-1;
    double value = scale * (1 + (f + f * f * p));
    return x < -708.3964185322641 ? 0.0 : value;
}

/* A row in double; `other` stands in for the label and for what is behind the last class. Returns the label's logit. */
INLINE double load(double *restrict row, struct logits from, Py_ssize_t number, Py_ssize_t label, Py_ssize_t other,
                   Py_ssize_t classes, Py_ssize_t width) {
    const char *data = from.data + number * from.row_bytes;
    if (from.is_double) {
        memcpy(row, data, classes * sizeof(double));
    } else {
        const float *single = (const float *)data;
        for (Py_ssize_t j = 0; j < classes; j++) row[j] = single[j];
    }
    double target = row[label];
    row[label] = row[other];
    for (Py_ssize_t j = classes; j < width; j++) row[j] = row[other];
    return target;
}

INLINE double largest(const double *row, Py_ssize_t width) {
    double most = -INFINITY;
    VECTORISED(reduction(max : most))
    for (Py_ssize_t j = 0; j < width; j++) most = row[j] > most ? row[j] : most;
    return most;
}

/* The first class with the largest logit: `most` is that of the others, `target` that of the label. */
INLINE Py_ssize_t answer(const double *row, Py_ssize_t label, double target, double most, Py_ssize_t classes) {
    if (target > most) return label;
    for (Py_ssize_t j = 0; j < classes; j++) {
        if (j == label && target == most) return label;
        if (j != label && row[j] == most) return j;
    }
    return label; /* nan */
}

/* Newton's steps from an upper bound of the root of sum_j min(u_j - zeta, 0) = zeta down to the root. */
INLINE double descend(const double *u, Py_ssize_t count, double zeta) {
    for (;;) {
        double sum = 0, active = 1;
        VECTORISED(reduction(+ : sum, active))
        for (Py_ssize_t j = 0; j < count; j++) {
            sum += u[j] < zeta ? u[j] : 0.0;
            active += u[j] < zeta ? 1.0 : 0.0;
        }
        double next = sum / active;
        if (!(next < zeta)) return zeta;
        zeta = next;
    }
}

/* The root. Any set of classes bounds it from above, and one class of each lane bounds it well. */
INLINE double threshold(const double *restrict u, Py_ssize_t width) {
    double least[LANES] = {0};
    for (Py_ssize_t start = 0; start < width; start += LANES)
        for (Py_ssize_t lane = 0; lane < LANES; lane++)
            least[lane] = u[start + lane] < least[lane] ? u[start + lane] : least[lane];
    return descend(u, width, descend(least, LANES, 0));
}

/* Whether the logs of r and q differ by no more than their rounding, everywhere. */
INLINE int are_equal(const struct batch *batch, struct room room, Py_ssize_t number, Py_ssize_t label,
                     Py_ssize_t other, double most_s, double log_s, double most_t, double log_t) {
    Py_ssize_t classes = batch->classes, width = batch->width;
    load(room.u, batch->student, number, label, other, classes, width);
    load(room.left, batch->teacher, number, label, other, classes, width);
    for (Py_ssize_t j = 0; j < classes; j++) {
        double log_r = (room.u[j] - most_s) - log_s, log_q = (room.left[j] - most_t) - log_t;
        if (!(fabs(log_r - log_q) <= ROUNDINGS * DBL_EPSILON * (1 + fabs(log_r)))) return 0;
    }
    return 1;
}

/* r, q, q_j c_j and u = r - q out of exponentials and their log-ratio; see `accurate_difference` for u. */
INLINE double compare(struct room room, Py_ssize_t width, double sum_s, double sum_t, double shift) {
    double *restrict r = room.r, *restrict q = room.q, *restrict left = room.left, *restrict u = room.u;
    double by_s = 1 / sum_s, by_t = 1 / sum_t, total = 0, heaviest = 0, rest = 0;
    VECTORISED(reduction(+ : total) reduction(max : heaviest))
    for (Py_ssize_t j = 0; j < width; j++) {
        double r_j = r[j] * by_s, q_j = q[j] * by_t, left_j = q_j * (left[j] + shift), u_j = r_j - q_j;
        double common = r_j < q_j ? r_j : q_j;
        r[j] = r_j;
        q[j] = q_j;
        left[j] = left_j;
        u[j] = fabs(u_j) < DBL_MIN ? 0.0 : u_j;
        total += left_j;
        heaviest = common > heaviest ? common : heaviest;
    }
    double first = (double)width;
    VECTORISED(reduction(min : first))
    for (Py_ssize_t j = 0; j < width; j++) {
        double place = (r[j] < q[j] ? r[j] : q[j]) == heaviest ? (double)j : (double)width;
        first = place < first ? place : first;
    }
    Py_ssize_t h = first < (double)width ? (Py_ssize_t)first : 0; /* none where there is a nan */
    u[h] = 0;
    VECTORISED(reduction(+ : rest))
    for (Py_ssize_t j = 0; j < width; j++) rest += u[j];
    u[h] = rest > 1 ? -1 : rest < -1 ? 1 : -rest;
    return total;
}

struct products {
    double r_r, r_u, r_s, u_u, u_s, s_s;
};

INLINE struct products multiply(const double *restrict r, const double *restrict u, Py_ssize_t width, double zeta) {
    double r_r = 0, r_u = 0, r_s = 0, u_u = 0, u_s = 0, s_s = 0;
    VECTORISED(reduction(+ : r_r, r_u, r_s, u_u, u_s, s_s))
    for (Py_ssize_t j = 0; j < width; j++) {
        double s = u[j] < zeta ? zeta : u[j];
        r_r += r[j] * r[j];
        r_u += r[j] * u[j];
        r_s += r[j] * s;
        u_u += u[j] * u[j];
        u_s += u[j] * s;
        s_s += s * s;
    }
    return (struct products){r_r, r_u, r_s, u_u, u_s, s_s};
}

INLINE double size(const double *row, Py_ssize_t width) {
    double most = 0;
    for (Py_ssize_t j = 0; j < width; j++) most = fabs(row[j]) > most ? fabs(row[j]) : most;
    return most;
}

FOR_EACH_PROCESSOR
static void diagnose_row(const struct batch *batch, Py_ssize_t number, struct room room) {
    /* The mask changes nothing but what the compiler knows: that no loop has a remainder. */
    Py_ssize_t classes = batch->classes, width = batch->width & -LANES;
    Py_ssize_t label = (Py_ssize_t)batch->labels[number], other = label == 0;
    double *restrict r = room.r, *restrict q = room.q, *restrict left = room.left;
    double *found = batch->found + number;
#define FOUND(column) found[(column) * batch->rows]

    double target_s = load(r, batch->student, number, label, other, classes, width), most_s = largest(r, width);
    double target_t = load(q, batch->teacher, number, label, other, classes, width), most_t = largest(q, width);
    FOUND(LEAD_STUDENT) = target_s - most_s;
    FOUND(LEAD_TEACHER) = target_t - most_t;
    FOUND(ANSWER_STUDENT) = (double)answer(r, label, target_s, most_s, classes);
    FOUND(ANSWER_TEACHER) = (double)answer(q, label, target_t, most_t, classes);

    double highest = -INFINITY, lowest = INFINITY, deepest = 0, sum_s = 0, sum_t = 0;
    VECTORISED(reduction(max : highest) reduction(min : lowest, deepest))
    for (Py_ssize_t j = 0; j < width; j++) {
        /* Differences first: they are exact under any common shift. */
        double behind_s = r[j] - most_s, behind_t = q[j] - most_t, gap = behind_t - behind_s;
        left[j] = gap;
        highest = gap > highest ? gap : highest;
        lowest = gap < lowest ? gap : lowest;
        deepest = behind_s < deepest ? behind_s : deepest;
        r[j] = exponential(behind_s);
        q[j] = exponential(behind_t);
    }
    r[label] = q[label] = 0;
    for (Py_ssize_t j = classes; j < width; j++) r[j] = q[j] = 0;
    VECTORISED(reduction(+ : sum_s, sum_t))
    for (Py_ssize_t j = 0; j < width; j++) {
        sum_s += r[j];
        sum_t += q[j];
    }
    double log_s = log(sum_s), log_t = log(sum_t), shift = log_s - log_t; /* equal logits have equal sums, and c = 0 */
    FOUND(LOG_STUDENT) = log_s;
    FOUND(LOG_TEACHER) = log_t;
    FOUND(HIGHEST) = highest += shift;
    FOUND(LOWEST) = lowest += shift;
    FOUND(LEFT) = compare(room, width, sum_s, sum_t, shift);

    /* Seldom: rows that may be equal are looked at again, in the order of operations of the definition. */
    double gap = highest > -lowest ? highest : -lowest;
    if (gap <= 2 * ROUNDINGS * DBL_EPSILON * (1 + log_s - deepest)) {
        struct room spare = {NULL, NULL, room.u + width, room.u + 2 * width};
        if (are_equal(batch, spare, number, label, other, most_s, log_s, most_t, log_t))
            memset(room.u, 0, width * sizeof(double));
    }
    double zeta = threshold(room.u, width), scale = 1;
    struct products products = multiply(r, room.u, width, zeta);
    if (products.u_u < TINY_SQUARES && size(room.u, width) > 0) {
        scale = 0x1p600; /* a power of two: no digit changes */
        zeta *= scale;
        for (Py_ssize_t j = 0; j < width; j++) room.u[j] *= scale;
        products = multiply(r, room.u, width, zeta);
    }
    FOUND(THRESHOLD) = zeta;
    FOUND(R_R) = products.r_r;
    FOUND(R_U) = products.r_u;
    FOUND(R_S) = products.r_s;
    FOUND(U_U) = products.u_u;
    FOUND(U_S) = products.u_s;
    FOUND(S_S) = products.s_s;
    FOUND(SCALE) = scale;
#undef FOUND
}

/* Add some columns of the rows that wait to the tables, row after row. */
FOR_EACH_PROCESSOR
static void add_to_tables(const struct batch *batch, Py_ssize_t first, Py_ssize_t count, Py_ssize_t from, Py_ssize_t to) {
    for (Py_ssize_t i = 0; i < count; i++) {
        const double *restrict held = batch->scratch + i * TABLES * batch->width;
        double *restrict cells = batch->tables + batch->labels[first + i] * batch->classes;
        for (Py_ssize_t table = 0; table < TABLES; table++) {
            for (Py_ssize_t j = from; j < to; j++) cells[j] += held[j];
            held += batch->width;
            cells += batch->classes * batch->classes;
        }
    }
}

/* Scratch memory: `held` times three rows, then three more per thread. */
static void all_rows(const struct batch *batch, int threads) {
    Py_ssize_t width = batch->width, step = batch->tables ? batch->held : batch->rows;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Py_ssize_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        double *own = batch->scratch + (batch->held + thread) * TABLES * width;
        for (Py_ssize_t start = 0; start < batch->rows; start += step) {
            Py_ssize_t count = start + step < batch->rows ? step : batch->rows - start;
#pragma omp for schedule(static)
            for (Py_ssize_t i = 0; i < count; i++) {
                double *rows = batch->scratch + (batch->tables ? i : thread) * TABLES * width;
                diagnose_row(batch, start + i, (struct room){rows + 2 * width, rows + width, rows, own});
            }
            if (batch->tables) {
                add_to_tables(batch, start, count, batch->classes * thread / team,
                              batch->classes * (thread + 1) / team);
#pragma omp barrier
            }
        }
    }
}

static Py_ssize_t rounded_up(Py_ssize_t classes) { return (classes + LANES - 1) & -LANES; }

/* Rows that are held: those that wait for the tables, or one for each thread. */
static Py_ssize_t held_rows(Py_ssize_t classes, int has_tables, int threads) {
    Py_ssize_t fit = HELD_BYTES / (TABLES * rounded_up(classes) * (Py_ssize_t)sizeof(double));
    return !has_tables ? threads : fit < threads ? threads : fit;
}

/* Takes addresses as numbers, of memory that rows.py has checked and holds. */
static PyObject *diagnose_rows(PyObject *Py_UNUSED(module), PyObject *args) {
    struct batch batch;
    Py_ssize_t student, teacher, labels, found, tables, scratch;
    int threads;
    if (!PyArg_ParseTuple(args, "(nnp)(nnp)nnnnnni", &student, &batch.student.row_bytes, &batch.student.is_double,
                          &teacher, &batch.teacher.row_bytes, &batch.teacher.is_double, &labels, &found, &tables,
                          &scratch, &batch.rows, &batch.classes, &threads))
        return NULL;
    batch.student.data = (const char *)student;
    batch.teacher.data = (const char *)teacher;
    batch.labels = (const int64_t *)labels;
    batch.found = (double *)found;
    batch.tables = (double *)tables;
    batch.scratch = (double *)scratch;
    batch.width = rounded_up(batch.classes);
    batch.held = held_rows(batch.classes, tables != 0, threads);
    for (Py_ssize_t number = 0; number < batch.rows; number++)
        if (batch.labels[number] < 0 || batch.labels[number] >= batch.classes)
            return PyErr_Format(PyExc_ValueError, "labels: expected class indices from 0 to %zd, got %lld at row %zd",
                                batch.classes - 1, (long long)batch.labels[number], number);
    Py_BEGIN_ALLOW_THREADS
    all_rows(&batch, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *scratch_numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_ssize_t classes;
    int has_tables, threads;
    if (!PyArg_ParseTuple(args, "npi", &classes, &has_tables, &threads)) return NULL;
    return PyLong_FromSsize_t((held_rows(classes, has_tables, threads) + threads) * TABLES * rounded_up(classes));
}

static PyMethodDef methods[] = {
    {"diagnose_rows", diagnose_rows, METH_VARARGS,
     "Write what is found of each row, a column each, and add the rows to the tables of class pairs."},
    {"scratch_numbers", scratch_numbers, METH_VARARGS, "Doubles of scratch memory that all threads work in."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_rows", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "COLUMNS", COLUMNS) < 0) Py_CLEAR(module);
    return module;
}
