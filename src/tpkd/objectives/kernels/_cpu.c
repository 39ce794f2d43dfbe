/* The protected loss on a CPU: every row in one go, in memory that its core keeps close.

   The mathematics is said in __init__.py of this folder; tensor.py has the same algorithm for everything else. A row is
   copied into scratch memory, its correct classes and what fills it up to whole vectors as -inf: exponentials make zeros
   of both, and no loop below has to know of them. Loops are plain; the compiler vectorises them for each kind of
   processor. Sums are taken in float over CHUNK numbers, so few that equal roundings cannot add up, and in double over
   chunks.

   A temperature adds a row of softened exponentials. A truncated teacher has no row: its kept classes leave the
   student's row for a short list, and on the rest it is a multiple of the student, so that one number says it all. Each
   of the four kinds is the same function, compiled with two constants. */

#include "../../vectorised.h"

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
    struct logits soft; /* probabilities in the place of labels, or no data */
    const float *log_probs; /* of a truncated teacher, in the place of logits: so many `places` for each row */
    const double *label_log_probs, *rest_log_probs; /* or NULL */
    /* Nobody else's memory, because other threads may write to the caller's: an index that is checked is used. */
    const int64_t *indices, *labels; /* no labels with soft ones */
    const char *valid; /* NULL where all rows are */
    float *losses;
    char *scratch;
    Py_ssize_t places, rows, classes, width, thread_bytes; /* width: classes rounded up to LANES */
    double beta, temperature, weight, tolerance; /* tolerance: of the sum of a row of probabilities */
};

/* A class that a truncated teacher kept; e_s, e_x and e_t are exponentials, of which x is softened. */
struct kept {
    int64_t class;
    double logit, log_prob, e_s, e_x, e_t;
};

/* What one thread works in. */
struct room {
    float *s, *t, *x, *kept_u;
    int32_t *correct; /* the correct classes */
    struct kept *kept;
};

enum { IGNORED = -1, WRONG = -2 };

union word {
    float number;
    uint32_t bits;
};
INLINE float float_of(uint32_t bits) { return (union word){.bits = bits}.number; }
INLINE uint32_t bits_of(float number) { return (union word){.number = number}.bits; }

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

/* `count` numbers of a row, filled up to `width` with -inf. */
INLINE void load(float *restrict row, struct logits from, Py_ssize_t number, Py_ssize_t start, Py_ssize_t count,
                 Py_ssize_t width) {
    const char *data = from.data + number * from.row_bytes;
    if (from.dtype == FLOAT32) {
        memcpy(row, data + start * (Py_ssize_t)sizeof(float), count * sizeof(float));
    } else {
        for (Py_ssize_t j = 0; j < count; j++) {
            uint16_t half; /* perhaps at an odd address, as in tensors made from a buffer */
            memcpy(&half, data + (start + j) * (Py_ssize_t)sizeof half, sizeof half);
            row[j] = from.dtype == BFLOAT16 ? float_of((uint32_t)half << 16) : from_half(half);
        }
    }
    for (Py_ssize_t j = count; j < width; j++) row[j] = -INFINITY;
}

INLINE float largest(const float *row, Py_ssize_t width) {
    float most = -INFINITY;
    VECTORISED(reduction(max : most))
    for (Py_ssize_t j = 0; j < width; j++) most = row[j] > most ? row[j] : most;
    return most;
}

/* Newton's steps from an upper bound of the root of sum_j min(u_j - zeta, 0) = correct zeta down to the root. */
INLINE float descend(const float *u, Py_ssize_t count, float zeta, double correct) {
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
        float next = (float)(sum / (active + correct));
        if (!(next < zeta)) return zeta;
        zeta = next;
    }
}

INLINE float at(struct logits rows, Py_ssize_t number, Py_ssize_t j) {
    float one;
    load(&one, rows, number, j, 1, 1);
    return one;
}

/* What a soft label gives to a class. */
INLINE double share(const struct batch *batch, Py_ssize_t number, Py_ssize_t j, double sum) {
    return batch->soft.data ? (float)(at(batch->soft, number, j) / sum) : 1;
}

/* The classes to which a soft label gives probability, and its sum; their number, IGNORED or WRONG. */
INLINE Py_ssize_t support(const struct batch *batch, Py_ssize_t number, struct room room, double *all) {
    Py_ssize_t found = 0, size = batch->soft.dtype == FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    double sum = 0;
    for (Py_ssize_t start = 0; start < batch->classes; start += CHUNK) {
        Py_ssize_t count = start + CHUNK < batch->classes ? CHUNK : batch->classes - start;
        const char *data = batch->soft.data + number * batch->soft.row_bytes + start * size;
        uint64_t any = count < CHUNK, word; /* most chunks are all zeros, and bits tell that fastest */
        for (Py_ssize_t i = 0; count == CHUNK && i < CHUNK * size; i += sizeof word) {
            memcpy(&word, data + i, sizeof word);
            any |= word;
        }
        if (!any) continue;
        float part[CHUNK];
        load(part, batch->soft, number, start, count, count);
        for (Py_ssize_t j = 0; j < count; j++) {
            if (part[j] == 0) continue;
            if (!(part[j] > 0) || found + 2 >= batch->classes) return WRONG; /* nan as well */
            sum += part[j];
            room.correct[found++] = (int32_t)(start + j);
        }
    }
    if (!found) return IGNORED;
    *all = sum;
    return fabs(sum - 1) <= batch->tolerance ? found : WRONG;
}

/* Move the kept classes of a truncated teacher out of the student's row; the number of them, or WRONG. The log of what
   the teacher gives to the rest goes to log_rest, -inf where that is nothing; nan where the label's is not known. */
INLINE Py_ssize_t take_out(const struct batch *batch, Py_ssize_t number, Py_ssize_t label, struct room room,
                           double *log_rest) {
    double log_label = batch->label_log_probs ? batch->label_log_probs[number] : NAN, among = NAN, given = 0;
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = number * batch->places; i < (number + 1) * batch->places; i++) {
        int64_t class = batch->indices[i];
        if (class < -1 || class >= batch->classes) return WRONG;
        if (class == label) among = batch->log_probs[i];
        if (class < 0 || class == label) continue;
        room.kept[kept++] = (struct kept){.class = class, .logit = room.s[class], .log_prob = batch->log_probs[i]};
        room.s[class] = -INFINITY;
        if (!batch->rest_log_probs) given += exp(batch->log_probs[i]);
    }
    if (log_label != log_label) log_label = among;
    if (log_label != log_label) *log_rest = NAN;
    else if (kept >= batch->classes - 1) *log_rest = -INFINITY;
    else if (batch->rest_log_probs) *log_rest = batch->rest_log_probs[number];
    else *log_rest = 1 - exp(log_label) - given < 0 ? -INFINITY : log(1 - exp(log_label) - given);
    return kept;
}

/* What is known of a row, from its logits to its threshold. */
struct row {
    Py_ssize_t correct, kept; /* how many classes are, correct or kept */
    double shares, label_logit, inside; /* sum of a soft label; of all correct classes together: logit, loss among them */
    double log_rest; /* what a truncated teacher gives to the classes that were cut */
    float most_s; /* the largest logit of the student's row, correct and kept classes left out */
    double most; /* the same with the kept classes */
    double sum_s, sum_x, sum_t, expected; /* of e_s, the same softened, of e_t, and of e_t times the log-ratio */
    double back, whole; /* what puts e_s relative to `most`, and the sum of all incorrect classes there */
    double ratio, conditional, lag; /* sums of student over teacher, KL(q || r), log(1 - rho) - log(rho) */
    float multiple, zeta; /* u over e_x on what a truncated teacher cut; the threshold */
};

/* Load both networks and move the correct and the kept classes out of the way; 0, IGNORED or WRONG. */
INLINE Py_ssize_t open_row(const struct batch *batch, Py_ssize_t number, struct room room, struct row *row,
                           const int truncated) {
    Py_ssize_t width = batch->width & -LANES, classes = batch->classes;
    load(room.s, batch->student, number, 0, classes, width);
    if (!truncated) load(room.t, batch->teacher, number, 0, classes, width);
    int64_t label = batch->soft.data ? 0 : batch->labels[number];
    if (label < 0 || label >= classes) return WRONG; /* in a compiled graph nothing else looks at it */
    room.correct[0] = (int32_t)label;
    if (batch->soft.data) row->correct = support(batch, number, room, &row->shares);
    if (row->correct < 0) return row->correct;
    row->label_logit = room.s[room.correct[0]];
    if (row->correct > 1) {
        double most = -INFINITY, among = 0;
        for (Py_ssize_t i = 0; i < row->correct; i++) most = fmax(most, room.s[room.correct[i]]);
        for (Py_ssize_t i = 0; i < row->correct; i++) among += exp(room.s[room.correct[i]] - most);
        row->label_logit = most + log(among);
    }
    for (Py_ssize_t i = 0; i < row->correct; i++) {
        Py_ssize_t y = room.correct[i];
        if (row->correct > 1) row->inside += share(batch, number, y, row->shares) * (row->label_logit - room.s[y]);
        room.s[y] = -INFINITY;
        if (!truncated) room.t[y] = -INFINITY;
    }
    if (truncated) row->kept = take_out(batch, number, room.correct[0], room, &row->log_rest);
    return row->kept < 0 ? row->kept : 0;
}

/* Exponentials in the place of the logits, relative to the largest of the row, and their sums. */
INLINE void exponentiate(const struct batch *batch, struct room room, struct row *row, const int tempered,
                         const int truncated) {
    /* The mask changes nothing but what the compiler knows: that no loop has a remainder. */
    Py_ssize_t width = batch->width & -LANES;
    float *restrict s = room.s, *restrict t = room.t, *restrict x = room.x;
    float sharpness = tempered ? (float)(LOG2_E / batch->temperature) : LOG2_E;
    float most_s = largest(s, width), most_t = truncated ? 0 : largest(t, width);
    row->most = most_s;
    for (Py_ssize_t i = 0; i < row->kept; i++)
        row->most = room.kept[i].logit > row->most ? room.kept[i].logit : row->most;
    if (truncated && most_s == -INFINITY && row->most > most_s) most_s = (float)row->most; /* nothing was cut */
    row->most_s = most_s;
    for (Py_ssize_t start = 0; start < width; start += CHUNK) {
        Py_ssize_t end = start + CHUNK < width ? start + CHUNK : width;
        float part_s = 0, part_x = 0, part_t = 0, part = 0;
        VECTORISED(reduction(+ : part_s, part_x, part_t, part))
        for (Py_ssize_t j = start; j < end; j++) {
            /* Differences first: they are exact under any common shift. */
            float behind_s = s[j] - most_s, e_s = power_of_two(behind_s * LOG2_E);
            if (tempered) {
                float softened = power_of_two(behind_s * sharpness);
                x[j] = softened;
                part_x += softened;
            }
            s[j] = e_s;
            part_s += e_s;
            if (!truncated) {
                float behind_t = t[j] - most_t, e_t = power_of_two(behind_t * sharpness);
                t[j] = e_t;
                part_t += e_t;
                part += e_t == 0 ? 0 : e_t * (behind_t - behind_s);
            }
        }
        row->sum_s += part_s;
        row->sum_x += tempered ? part_x : part_s;
        row->sum_t += part_t;
        row->expected += part;
    }
}

/* KL(q || r) and u of a truncated teacher: the rest counts as one more kept class. Inside it q and r are proportional,
   softened or not, so that u is a multiple of the exponentials there. */
INLINE void compare_truncated(struct room room, struct row *row, double T) {
    double highest = -INFINITY, sum_r = 0 * row->sum_s, sum_q = 0; /* a nan stays */
    struct kept *end = room.kept + row->kept, *rest = end;
    row->back = exp(row->most_s - row->most);
    row->whole = row->back * row->sum_s;
    for (struct kept *one = room.kept; one < end; one++) row->whole += one->e_s = exp(one->logit - row->most);
    if (row->log_rest == row->log_rest && row->sum_s > 0) { /* nan: only the kept classes are known */
        double softened = T * log(row->sum_x);
        *end++ = (struct kept){.logit = row->most_s + softened, .log_prob = row->log_rest - log(row->sum_s) + softened};
    }
    for (struct kept *one = room.kept; one < end; one++)
        highest = highest >= one->log_prob || highest != highest ? highest : one->log_prob; /* a nan stays, too */
    int says_nothing = highest == -INFINITY; /* of other classes than the label: then it follows the student */
    if (says_nothing) highest = row->most;
    for (struct kept *one = room.kept; one < end; one++) {
        if (says_nothing) one->log_prob = one->logit;
        one->e_x = T == 1 && one < rest ? one->e_s : exp((one->logit - row->most) / T);
        one->e_t = exp((one->log_prob - highest) / T);
        sum_r += one->e_x;
        sum_q += one->e_t;
    }
    row->ratio = end > room.kept ? sum_r / sum_q : sum_r; /* where nothing is known, nothing is learned */
    for (struct kept *one = room.kept; one < end; one++) {
        double q = one->e_t / sum_q, behind = one->log_prob - highest - (one->logit - row->most);
        row->conditional += q == 0 ? 0 : q * (behind / T + log(row->ratio));
        room.kept_u[one - room.kept] = (float)(T * (one->e_x / sum_r - q));
    }
    row->multiple = end > rest ? (float)(room.kept_u[row->kept] / row->sum_x) : 0;
}

/* u = r - q and its root, both times the sum of e_x; equal logits have equal sums, and a u of exactly 0. With a
   truncated teacher u is the true one. */
INLINE float threshold(const struct batch *batch, struct room room, const struct row *row, const float *restrict x,
                       const int truncated) {
    Py_ssize_t width = batch->width & -LANES;
    double correct = (double)row->correct;
    if (truncated && !(row->multiple < 0)) return descend(room.kept_u, row->kept, 0, correct); /* no other is negative */
    float *restrict t = room.t, teacher_scale = (float)row->ratio, multiple = row->multiple, least[LANES] = {0};
    for (Py_ssize_t start = 0; start < width; start += LANES)
        for (Py_ssize_t lane = 0; lane < LANES; lane++) {
            float u = truncated ? multiple * x[start + lane] : x[start + lane] - teacher_scale * t[start + lane];
            t[start + lane] = u;
            least[lane] = u < least[lane] ? u : least[lane];
        }
    for (Py_ssize_t i = 0; i < row->kept; i++) {
        float u = room.kept_u[i], *lane = &least[room.kept[i].class & (LANES - 1)];
        t[room.kept[i].class] = u;
        *lane = u < *lane ? u : *lane;
    }
    /* Any set of classes bounds the root from above, and one class of each lane bounds it well. */
    return descend(t, width, descend(least, LANES, 0, correct), correct);
}

INLINE void put(struct logits rows, Py_ssize_t number, Py_ssize_t j, float value) {
    char *data = rows.data + number * rows.row_bytes;
    if (rows.dtype == FLOAT32) ((float *)data)[j] = value;
    else ((uint16_t *)data)[j] = to_bfloat(value);
}

/* The weighted direction: max(u, zeta) in an order that lets a nan through. */
INLINE void write_direction(const struct batch *batch, Py_ssize_t number, struct room room, const struct row *row,
                            const float *restrict x, double T, const int truncated) {
    float *restrict s = room.s, *restrict t = room.t;
    double residual = batch->weight / (1 + exp(-row->lag));
    double confidence = row->correct > 1 ? batch->weight / (1 + exp(row->lag)) : 0; /* used for sets alone */
    double scale = truncated ? 1 : T, sum = truncated ? 1 : row->sum_x; /* of u */
    float on_label = (float)(residual / row->whole * row->back), multiple = row->multiple, zeta = row->zeta;
    float on_teacher = (float)(batch->beta * batch->weight * scale / sum);
    /* The gradient may take the place of the logits, and u is not needed at the correct classes. */
    for (Py_ssize_t i = 0; row->correct > 1 && i < row->correct; i++)
        t[room.correct[i]] = at(batch->student, number, room.correct[i]);
    struct logits v = batch->gradient;
    for (Py_ssize_t j = 0; j < batch->classes; j++) {
        float u = truncated ? multiple * x[j] : t[j];
        put(v, number, j, on_label * s[j] + on_teacher * (u < zeta ? zeta : u));
    }
    for (Py_ssize_t i = 0; i < row->kept; i++) {
        float u = room.kept_u[i], p = (float)(residual * room.kept[i].e_s / row->whole);
        put(v, number, room.kept[i].class, p + on_teacher * (u < zeta ? zeta : u));
    }
    for (Py_ssize_t i = 0; i < row->correct; i++) {
        Py_ssize_t y = room.correct[i];
        double given = share(batch, number, y, row->shares);
        double moved = row->correct > 1 ? confidence * (exp(t[y] - row->label_logit) - given) : 0;
        double at_label = (double)on_teacher * zeta - residual * given + moved;
        put(v, number, y, row->ratio != row->ratio ? NAN : (float)at_label);
    }
}

/* The loss of one row; and its weighted direction, where one is wanted. IGNORED or WRONG through `state`. */
INLINE double row_loss(const struct batch *batch, Py_ssize_t number, struct room room, Py_ssize_t *state,
                       const int tempered, const int truncated) {
    struct row row = {.correct = 1, .shares = 1, .back = 1};
    double T = tempered ? batch->temperature : 1;
    const float *x = tempered ? room.x : room.s;
    *state = open_row(batch, number, room, &row, truncated);
    if (*state) return 0;
    exponentiate(batch, room, &row, tempered, truncated);
    if (truncated) {
        compare_truncated(room, &row, T);
    } else {
        row.whole = row.sum_s;
        row.ratio = row.sum_x / row.sum_t;
        row.conditional = log(row.ratio) + (tempered ? row.expected / T : row.expected) / row.sum_t;
    }
    row.lag = log(row.whole) + (row.most - row.label_logit);
    double label_loss = row.lag > 0 ? row.lag + log1p(exp(-row.lag)) : log1p(exp(row.lag));
    double loss = label_loss + row.inside + batch->beta * T * T * (row.conditional < 0 ? 0 : row.conditional);
    if (!batch->gradient.data) return loss;
    row.zeta = threshold(batch, room, &row, x, truncated);
    write_direction(batch, number, room, &row, x, T, truncated);
    return loss;
}

/* The same, compiled for each of the four kinds. */
FOR_EACH_PROCESSOR
static double loss_of(const struct batch *batch, Py_ssize_t number, struct room room, Py_ssize_t *state) {
    int truncated = batch->places > 0;
    if (batch->temperature == 1)
        return truncated ? row_loss(batch, number, room, state, 0, 1) : row_loss(batch, number, room, state, 0, 0);
    return truncated ? row_loss(batch, number, room, state, 1, 1) : row_loss(batch, number, room, state, 1, 0);
}

/* The parts of a thread's scratch memory, each a multiple of eight bytes; their total where there is no memory yet. */
static size_t divide(char *memory, struct room *room, Py_ssize_t width, Py_ssize_t places, int tempered, int soft) {
    size_t rows = width * sizeof(float), total = 0;
#define PART(name, bytes) room->name = (void *)((uintptr_t)memory + total), total += (bytes)
    PART(s, rows);
    PART(t, rows);
    PART(x, tempered ? rows : 0);
    PART(correct, soft ? rows : sizeof(double));
    PART(kept, (places + 1) * sizeof(struct kept));
    PART(kept_u, (places + 1) * sizeof(double));
#undef PART
    return total;
}

/* Counts the rows that are ignored; returns the first that is wrong, or -1. */
static Py_ssize_t all_rows(const struct batch *batch, int threads, Py_ssize_t *all_ignored) {
    Py_ssize_t ignored = 0, wrong = batch->rows;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1) reduction(+ : ignored)
    for (Py_ssize_t number = 0; number < batch->rows; number++) {
        double loss = 0;
        Py_ssize_t state = batch->valid && !batch->valid[number] ? IGNORED : 0;
        if (!state) {
            struct room room;
            divide(batch->scratch + omp_get_thread_num() * batch->thread_bytes, &room, batch->width, batch->places,
                   batch->temperature != 1, batch->soft.data != NULL);
            loss = loss_of(batch, number, room, &state);
        }
        if (state && batch->gradient.data)
            memset(batch->gradient.data + number * batch->gradient.row_bytes, 0,
                   batch->classes * (batch->gradient.dtype == FLOAT32 ? sizeof(float) : sizeof(uint16_t)));
        ignored += state == IGNORED;
        if (state == WRONG) {
#pragma omp critical
            wrong = number < wrong ? number : wrong;
        }
        batch->losses[number] = (float)loss;
    }
    *all_ignored = ignored;
    return wrong < batch->rows ? wrong : -1;
}

static int address(PyObject *number, void *pointer) {
    void *found = PyLong_AsVoidPtr(number);
    memcpy(pointer, &found, sizeof found);
    return !PyErr_Occurred();
}

/* Takes addresses as numbers, of memory that cpu.py has checked and holds. */
static PyObject *losses_and_directions(PyObject *Py_UNUSED(module), PyObject *args) {
    struct batch batch;
    int threads;
    if (!PyArg_ParseTuple(
            args, "(O&ni)(O&ni)(O&ni)(O&ni)O&O&O&O&O&O&O&O&nnnnddddi", address, &batch.student.data,
            &batch.student.row_bytes, &batch.student.dtype, address, &batch.teacher.data, &batch.teacher.row_bytes,
            &batch.teacher.dtype, address, &batch.gradient.data, &batch.gradient.row_bytes, &batch.gradient.dtype,
            address, &batch.soft.data, &batch.soft.row_bytes, &batch.soft.dtype, address, &batch.log_probs, address,
            &batch.indices, address, &batch.label_log_probs, address, &batch.rest_log_probs, address, &batch.labels,
            address, &batch.valid, address, &batch.losses, address, &batch.scratch, &batch.places, &batch.rows,
            &batch.classes, &batch.thread_bytes, &batch.beta, &batch.temperature, &batch.weight, &batch.tolerance, &threads))
        return NULL;
    batch.width = (batch.classes + LANES - 1) & -LANES;
    double total = 0;
    Py_ssize_t ignored, wrong;
    Py_BEGIN_ALLOW_THREADS
    if (batch.labels)
        batch.labels = memcpy(batch.scratch + threads * batch.thread_bytes, batch.labels, batch.rows * sizeof(int64_t));
    wrong = all_rows(&batch, threads, &ignored);
    /* In one order, however many threads there were. */
    for (Py_ssize_t number = 0; number < batch.rows; number++) total += batch.losses[number];
    Py_END_ALLOW_THREADS
    return Py_BuildValue("dnn", (double)(float)(total * batch.weight), ignored, wrong);
}

static PyObject *scratch_bytes(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_ssize_t classes, places;
    int tempered, soft;
    struct room room;
    if (!PyArg_ParseTuple(args, "nnpp", &classes, &places, &tempered, &soft)) return NULL;
    return PyLong_FromSize_t(divide(NULL, &room, (classes + LANES - 1) & -LANES, places, tempered, soft));
}

static PyMethodDef methods[] = {
    {"losses_and_directions", losses_and_directions, METH_VARARGS,
     "Write losses and directions of a batch; return the weighted sum of the losses, the number of ignored rows, and "
     "the first row with a label or a kept class that is wrong, or -1."},
    {"scratch_bytes", scratch_bytes, METH_VARARGS, "Bytes of scratch memory that one thread works in."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cpu", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__cpu(void) { return PyModule_Create(&definition); }
