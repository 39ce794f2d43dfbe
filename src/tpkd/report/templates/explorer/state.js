// The state of the explorer: probabilities, a label and a few settings; and the address that holds them.
const tpkdState = (() => {
  "use strict";
  const LEAST = 1e-4;
  const LIMITS = { beta: [0, 2], temperature: [0.25, 10], position: [0, 1], budget: [0, 4] };
  const MIN_CLASSES = 3, MAX_CLASSES = 6;

  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const rounded = (value) => Number(value.toFixed(6));

  // Probabilities none of which is zero: the theory speaks of logarithms.
  function normalised(values) {
    let found = values.map((value) => Math.max(value, 0));
    for (let round = 0; round < 4; round++) {
      const total = tpkdTheory.sum(found);
      found = found.map((value) => Math.max(value / total, LEAST));
    }
    return found.map(rounded);
  }

  // One class gets a probability, and all others share the rest as before.
  function withClass(probabilities, index, value) {
    const rest = 1 - probabilities[index];
    return normalised(probabilities.map((each, j) => (j === index ? value : (each / rest) * (1 - value))));
  }

  // The correct classes get a total, and all keep their proportions.
  function withConfidence(probabilities, labels, confidence) {
    const before = tpkdTheory.sum(probabilities.filter((_, j) => labels[j] > 0));
    return normalised(probabilities.map((each, j) => (labels[j] > 0 ? (each / before) * confidence : (each / (1 - before)) * (1 - confidence))));
  }

  function withNumClasses(state, count) {
    const fit = (values) => normalised(values.length >= count ? values.slice(0, count) : [...values, ...Array(count - values.length).fill(0.05)]);
    const labels = oneLabel(Math.min(count - 1, correctOf(state)[0]), count);
    return { ...state, student: fit(state.student), teacher: fit(state.teacher), labels };
  }

  const oneLabel = (index, count) => Array.from({ length: count }, (_, j) => (j === index ? 1 : 0));
  const correctOf = (state) => tpkdTheory.correctClasses(state.labels);

  // One correct class, or two with a share for the first; three classes have no room for two.
  function withLabel(state, first, second, share) {
    const labels = oneLabel(first, state.labels.length);
    if (second !== null && second !== first && state.labels.length > 3) {
      labels[first] = rounded(share);
      labels[second] = rounded(1 - share);
    }
    return { ...state, labels };
  }

  function ofCase(given) {
    const probabilities = (logits) => normalised(tpkdTheory.exp(tpkdTheory.logSoftmax(logits)));
    return {
      student: probabilities(given.student_logits), teacher: probabilities(given.teacher_logits), labels: given.labels,
      beta: given.beta, temperature: given.temperature, position: given.position, budget: given.budget,
    };
  }

  function toAddress(state) {
    const label = correctOf(state).map((j) => (state.labels[j] === 1 ? `${j + 1}` : `${j + 1}:${state.labels[j]}`)).join(",");
    return `p=${state.student.join(",")}&t=${state.teacher.join(",")}&y=${label}&beta=${state.beta}&T=${state.temperature}&s=${state.position}&B=${state.budget}`;
  }

  // The state of an address; null where it says anything else.
  function fromAddress(text) {
    const fields = Object.fromEntries(text.split("&").map((part) => part.split("=", 2)));
    const list = (value) => (value ?? "").split(",").map(Number);
    const fits = (values) => values.length >= MIN_CLASSES && values.length <= MAX_CLASSES && values.every((value) => value >= 0 && value <= 1) && tpkdTheory.sum(values) > 0;
    const [student, teacher] = [list(fields.p), list(fields.t)];
    if (!fits(student) || !fits(teacher) || student.length !== teacher.length) return null;
    const labels = student.map(() => 0);
    for (const part of (fields.y ?? "").split(",")) {
      const [place, share = "1"] = part.split(":");
      if (!(Number(place) >= 1 && Number(place) <= labels.length && Number(share) > 0)) return null;
      labels[Number(place) - 1] = Number(share);
    }
    const total = tpkdTheory.sum(labels), count = labels.filter((share) => share > 0).length;
    if (Math.abs(total - 1) > 1e-3 || count > 2 || count > labels.length - 2) return null;
    const number = (value, name, otherwise) => (Number.isFinite(Number(value)) && value !== undefined && value !== "" ? clamp(Number(value), ...LIMITS[name]) : otherwise);
    return {
      student: normalised(student), teacher: normalised(teacher), labels: labels.map((share) => rounded(share / total)),
      beta: number(fields.beta, "beta", 0.5), temperature: number(fields.T, "temperature", 1),
      position: number(fields.s, "position", 0.5), budget: number(fields.B, "budget", 0.3),
    };
  }

  return { LEAST, LIMITS, MIN_CLASSES, MAX_CLASSES, clamp, correctOf, fromAddress, normalised, ofCase, toAddress, withClass, withConfidence, withLabel, withNumClasses };
})();
