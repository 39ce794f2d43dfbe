// The theory of one example, for the explorer. The functions have the names and the formulas of `tpkd.geometry` and
// `tpkd.theory`; tests compare them with those on 1,000 cases. Vectors have an entry per class. `labels` are shares that
// sum to one: the classes with a share are the correct ones, all others the incorrect ones.
const tpkdTheory = (() => {
  "use strict";
  const POTENTIAL_LABEL_WEIGHT = 4;
  const ROUNDINGS = 8;
  const SMALLEST_NORMAL = 2 ** -1022;

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const largest = (values) => Math.max(...values);
  const least = (values) => Math.min(...values);
  const inner = (a, b) => sum(a.map((value, index) => value * b[index]));
  const exp = (values) => values.map((value) => Math.exp(value));
  const logSigmoid = (x) => (x < 0 ? x - Math.log1p(Math.exp(x)) : -Math.log1p(Math.exp(-x)));
  const sigmoid = (x) => Math.exp(logSigmoid(x));
  const logAddExp = (a, b) => {
    const top = Math.max(a, b);
    return top === -Infinity ? top : top + Math.log1p(Math.exp(-Math.abs(a - b)));
  };

  function logSumExp(values) {
    const top = largest(values);
    return top === -Infinity ? top : top + Math.log(sum(values.map((value) => Math.exp(value - top))));
  }

  function logSoftmax(values) {
    const total = logSumExp(values);
    return values.map((value) => value - total);
  }

  const correctClasses = (labels) => [...labels.keys()].filter((j) => labels[j] > 0);
  const incorrectClasses = (labels) => [...labels.keys()].filter((j) => !(labels[j] > 0));
  const take = (values, classes) => classes.map((j) => values[j]);

  // Entries of the incorrect classes, and one value for every correct class (`insert_target`).
  function insertTarget(others, target, labels) {
    let next = 0;
    return labels.map((share) => (share > 0 ? target : others[next++]));
  }

  // p = (rho, (1 - rho) r), in log space: `logConditional` is log r, over the incorrect classes.
  function split(logits, labels) {
    const others = take(logits, incorrectClasses(labels));
    const logConditional = logSoftmax(others);
    const joint = logSumExp(take(logits, correctClasses(labels)));
    const logOdds = joint - largest(others) + largest(logConditional);
    return { logOdds, logConfidence: logSigmoid(logOdds), logResidual: logSigmoid(-logOdds), logConditional };
  }

  const logWithin = (logits, labels) => logSoftmax(take(logits, correctClasses(labels)));

  // The inverse of `split`: log-probabilities with this log-odds and these relations; among the correct classes `inside`.
  function join(logOdds, logConditional, inside, labels) {
    const residual = logSigmoid(-logOdds), confidence = logSigmoid(logOdds);
    let correct = 0, incorrect = 0;
    return labels.map((share) => (share > 0 ? confidence + inside[correct++] : residual + logConditional[incorrect++]));
  }

  // Student and teacher, both split, and log(q_j / r_j) over the incorrect classes.
  function splitPair(studentLogits, teacherLogits, labels) {
    const student = split(studentLogits, labels), teacher = split(teacherLogits, labels);
    const logRatio = teacher.logConditional.map((logQ, j) => logQ - student.logConditional[j]);
    const inside = { student: logWithin(studentLogits, labels), teacher: logWithin(teacherLogits, labels) };
    return { student, teacher, labels, logRatio, inside };
  }

  const klDivergence = (logTarget, logInput) =>
    Math.max(0, sum(logTarget.map((value, j) => Math.exp(value) * (value - logInput[j]))));

  function binaryKlDivergence(target, input) {
    const yes = sigmoid(target) * (logSigmoid(target) - logSigmoid(input));
    const no = sigmoid(-target) * (logSigmoid(-target) - logSigmoid(-input));
    return Math.max(0, yes + no);
  }

  function labelLoss(logits, labels) {
    const shares = take(labels, correctClasses(labels));
    return -split(logits, labels).logConfidence - inner(shares, logWithin(logits, labels));
  }

  const conditionalLoss = (pair) => klDivergence(pair.teacher.logConditional, pair.student.logConditional);

  // L_T = kl(tau || rho) + (1 - tau) L_cond, and tau times the divergence among several correct classes.
  function imitationLoss(pair) {
    const { student, teacher, inside } = pair;
    const confidencePart = binaryKlDivergence(teacher.logOdds, student.logOdds);
    const insidePart = Math.exp(teacher.logConfidence) * klDivergence(inside.teacher, inside.student);
    return confidencePart + Math.exp(teacher.logResidual) * conditionalLoss(pair) + insidePart;
  }

  // M_j = z_y - z_j, the least over the correct classes y; infinite at a correct class.
  function margins(logits, labels) {
    const lead = least(take(logits, correctClasses(labels)));
    return labels.map((share, j) => (share > 0 ? Infinity : lead - logits[j]));
  }

  // max_j log(p_j / t_j) over the incorrect classes, and log(t_y / p_y) over several correct ones (theorem 1).
  function largestExcess(pair) {
    const { student, teacher, inside } = pair;
    const excess = student.logResidual - teacher.logResidual - least(pair.logRatio);
    if (inside.student.length === 1) return excess;
    const shares = inside.teacher.map((value, y) => value - inside.student[y]);
    return Math.max(excess, teacher.logConfidence - student.logConfidence + largest(shares));
  }

  const isBlocked = (pair, tolerance = 0) => largestExcess(pair) <= tolerance;

  // The log-odds above which a student with these relations is blocked; infinite where no confidence blocks.
  function strictBlockingLogOdds(pair) {
    const { teacher, inside } = pair;
    const logResidual = teacher.logResidual + Math.min(0, least(pair.logRatio));
    const border = Math.log(-Math.expm1(logResidual)) - logResidual;
    if (inside.student.length === 1) return border;
    const shares = inside.teacher.map((value, y) => value - inside.student[y]);
    const logConfidence = Math.min(0, teacher.logConfidence + largest(shares));
    return Math.max(border, logConfidence - Math.log(-Math.expm1(logConfidence)));
  }

  // D_inf(q || r) = max_j log(q_j / r_j) (theorem 2).
  const transferCost = (pair) => Math.max(0, largest(pair.logRatio));
  const minLogOdds = (pair) => pair.student.logOdds + transferCost(pair);
  const minConfidence = (pair) => sigmoid(minLogOdds(pair));

  // p* = (a_min, (1 - a_min) q), as log-probabilities.
  const transferEndpoint = (pair) => join(minLogOdds(pair), pair.teacher.logConditional, pair.inside.student, pair.labels);

  // p(s): r(s) = (1 - s) r + s q and logit a(s) = logit(rho) + log(1 - s + s R), as log-probabilities.
  function logTransferPath(pair, position) {
    const stay = Math.log1p(-position), go = Math.log(position);
    const logOdds = pair.student.logOdds + logAddExp(stay, go + transferCost(pair));
    const relations = pair.student.logConditional.map((logR, j) => logR + logAddExp(stay, go + pair.logRatio[j]));
    return join(logOdds, relations, pair.inside.student, pair.labels);
  }

  // V(B) = min KL(q || x) over x_j <= e^B r_j, reached at x_j = min(e^B r_j, q_j / lambda).
  function frontier(pair, budget) {
    const logR = pair.student.logConditional, logQ = pair.teacher.logConditional;
    if (budget >= transferCost(pair)) return { logConditional: logQ, value: 0 };
    const order = [...logR.keys()].sort((a, b) => pair.logRatio[b] - pair.logRatio[a]);
    for (let capped = 0; capped < order.length; capped++) {
      const atCap = sum(exp(take(logR, order.slice(0, capped))));
      const free = order.slice(capped);
      // 1 - e^B R without cancellation: the mass of the rest, minus what the caps have gained.
      const left = sum(exp(take(logR, free))) - Math.expm1(budget) * atCap;
      const logMultiplier = logSumExp(take(logQ, free)) - Math.log(left);
      if (left > 0 && pair.logRatio[free[0]] - logMultiplier <= budget) {
        const logConditional = logR.map((value, j) => value + Math.min(budget, pair.logRatio[j] - logMultiplier));
        return { logConditional, value: klDivergence(logQ, logConditional) };
      }
    }
    return { logConditional: logR, value: conditionalLoss(pair) }; // a budget of zero
  }

  // T (r_T - q_T): the class with most mass in both takes minus the sum of the others, which keeps its digits.
  function conditionalDifference(logR, logQ, temperature) {
    const equal = logR.every((value, j) => Math.abs(value - logQ[j]) <= ROUNDINGS * Number.EPSILON * (1 + Math.abs(value)));
    if (equal) return logR.map(() => 0);
    const r = exp(logR), q = exp(logQ);
    const difference = r.map((value, j) => (Math.abs(value - q[j]) < SMALLEST_NORMAL ? 0 : value - q[j]));
    const shared = r.map((value, j) => Math.min(value, q[j]));
    const heaviest = shared.indexOf(largest(shared));
    const others = sum(difference.filter((_, j) => j !== heaviest));
    difference[heaviest] = Math.min(1, Math.max(-1, -others));
    return difference.map((value) => temperature * value);
  }

  // zeta, the least mean of the coordinates of the correct classes (their sum and count) with the k smallest others.
  function safeThreshold(target, others, count) {
    let total = target, found = target / count;
    [...others].sort((a, b) => a - b).forEach((value, k) => {
      total += value;
      found = Math.min(found, total / (k + 1 + count));
    });
    return found;
  }

  // The nearest direction that lowers no margin: min(g_y, zeta) at correct classes, max(g_j, zeta) at the others.
  function projectSafeCone(direction, labels) {
    const correct = take(direction, correctClasses(labels)), others = take(direction, incorrectClasses(labels));
    const best = [...correct].sort((a, b) => b - a);
    // The classes of the set that take part are the largest: as many as exceed the threshold they have together.
    let zeta = safeThreshold(best[0], others, 1);
    for (let count = 2; count <= best.length && best[count - 1] > zeta; count++) {
      zeta = safeThreshold(sum(best.slice(0, count)), others, count);
    }
    return labels.map((share, j) => (share > 0 ? Math.min(direction[j], zeta) : Math.max(direction[j], zeta)));
  }

  // h = p - s, without a cancelling subtraction: (1 - rho)(-1, r) for one correct class.
  function labelDirection(student, inside, labels) {
    const residual = Math.exp(student.logResidual), confidence = Math.exp(student.logConfidence);
    let correct = 0, incorrect = 0;
    return labels.map((share) => {
      if (!(share > 0)) return residual * Math.exp(student.logConditional[incorrect++]);
      return confidence * (Math.exp(inside[correct++]) - share) - residual * share;
    });
  }

  const imitationDirection = (studentLogits, teacherLogits) => {
    const t = exp(logSoftmax(teacherLogits));
    return exp(logSoftmax(studentLogits)).map((value, j) => value - t[j]);
  };

  // Every direction of the protected update: h, u, d, v, the compensation l, the clipped mass and w_cond.
  function directions(studentLogits, teacherLogits, labels, { beta = 0.5, temperature = 1 } = {}) {
    const incorrect = incorrectClasses(labels), count = labels.length - incorrect.length;
    const soft = (logits) => logSoftmax(take(logits, incorrect).map((value) => value / temperature));
    const label = labelDirection(split(studentLogits, labels), logWithin(studentLogits, labels), labels);
    const difference = conditionalDifference(soft(studentLogits), soft(teacherLogits), temperature);
    const zeta = safeThreshold(0, difference, count);
    const safeOthers = difference.map((value) => Math.max(value, zeta));
    const safe = insertTarget(safeOthers, zeta, labels);
    const share = (count * zeta) / incorrect.length;
    return {
      label,
      conditional: insertTarget(difference, 0, labels),
      safe,
      update: label.map((value, j) => value + beta * safe[j]),
      compensation: 0 - zeta,
      clippedMass: insertTarget(safeOthers.map((value, j) => value - difference[j]), 0, labels),
      pureConditional: insertTarget(safeOthers.map((value) => value + share), 0, labels),
    };
  }

  // Vectors are divided by their largest entry first: squares of a nearly finished student underflow.
  function scaled(vector) {
    const scale = largest(vector.map(Math.abs));
    return vector.map((value) => value / scale);
  }

  // u'd / ||u||^2, at least K / ((m + 1)(K - m)) (theorem 3); 1 where nothing is left to learn.
  function retention(step) {
    const scale = largest(step.conditional.map(Math.abs));
    if (scale === 0) return 1;
    const u = step.conditional.map((value) => value / scale), d = step.safe.map((value) => value / scale);
    return inner(u, d) / inner(u, u);
  }

  const retentionBound = (numClasses, numCorrect = 1) => numClasses / ((numCorrect + 1) * (numClasses - numCorrect));

  // cos(g_Phi, v) with g_Phi = 4 h + u (theorem 4); 1 where both vanish.
  function updateCosine(step) {
    const gradient = scaled(step.label.map((value, j) => POTENTIAL_LABEL_WEIGHT * value + step.conditional[j]));
    const update = scaled(step.update);
    const cosine = inner(gradient, update) / Math.sqrt(inner(gradient, gradient) * inner(update, update));
    return Number.isNaN(cosine) ? 1 : cosine;
  }

  // Every number of the page about one example (`tpkd.diagnose`, and what it leaves to other functions).
  function diagnose(studentLogits, teacherLogits, labels, { beta = 0.5, temperature = 1, tolerance = 0 } = {}) {
    const pair = splitPair(studentLogits, teacherLogits, labels);
    const step = directions(studentLogits, teacherLogits, labels, { beta, temperature });
    return {
      blocked: isBlocked(pair, tolerance),
      confidence: Math.exp(pair.student.logConfidence),
      teacherConfidence: Math.exp(pair.teacher.logConfidence),
      labelLoss: labelLoss(studentLogits, labels),
      imitationLoss: imitationLoss(pair),
      conditionalLoss: conditionalLoss(pair),
      transferCost: transferCost(pair),
      minConfidence: minConfidence(pair),
      compensation: step.compensation,
      retention: retention(step),
      updateCosine: updateCosine(step),
      pair,
      step,
    };
  }

  return {
    binaryKlDivergence, conditionalLoss, diagnose, directions, exp, frontier, imitationDirection, imitationLoss,
    incorrectClasses, correctClasses, inner, insertTarget, isBlocked, join, klDivergence, labelLoss, largestExcess, logSoftmax, logTransferPath,
    margins, minConfidence, minLogOdds, projectSafeCone, retentionBound, sigmoid, split, splitPair, strictBlockingLogOdds,
    sum, take, transferCost, transferEndpoint,
  };
})();
