// Which examples are shown, in which order: filters and keys over columns of numbers.
const examples = (() => {
  "use strict";
  const ANSWERS = {
    "": ["any answers", () => true],
    "teacher-only": ["teacher right, student wrong", (taught, right) => taught && !right],
    "student-only": ["student right, teacher wrong", (taught, right) => !taught && right],
    right: ["student right", (taught, right) => right],
    wrong: ["student wrong", (taught, right) => !right],
    "both-wrong": ["both wrong", (taught, right) => !taught && !right],
    different: ["student and teacher differ", (taught, right, same) => !same],
  };
  const FLIPS = {
    "": ["any change", () => true],
    lost: ["lost", (was, is) => was && !is],
    won: ["won", (was, is) => !was && is],
    kept: ["right in both", (was, is) => was && is],
    missed: ["wrong in both", (was, is) => !was && !is],
    "missed-alike": ["same wrong answer", (was, is, same) => !was && !is && same],
    "missed-differently": ["another wrong answer", (was, is, same) => !was && !is && !same],
    "margin-lower": ["smaller margin", (was, is, same, change) => change < 0],
    "margin-higher": ["larger margin", (was, is, same, change) => change > 0],
  };
  // Name, column, whether the largest comes first, and the format.
  const SORTS = {
    price: ["price", "transfer_cost", true, "nats"],
    loss: ["conditional loss", "conditional_loss", true, "nats"],
    margin: ["margin", "margin", false, "signedNats"],
    disagreement: ["disagreement (teacher KL)", "imitation_loss", true, "nats"],
    confidence: ["student's confidence", "confidence", false, "probability"],
    "teacher-confidence": ["teacher's confidence", "teacher_confidence", false, "probability"],
    row: ["row in the files", "row", false, "count"],
  };

  const choose = (state, shared, own, before) => {
    const [, fitsAnswers] = ANSWERS[state.answers];
    const [, fitsFlip] = FLIPS[state.flip];
    const label = state.label === "" ? -1 : Number(state.label);
    const answer = state.answer === "" ? -1 : Number(state.answer);
    const blocked = { "": -1, yes: 1, no: 0 }[state.blocked];
    const chosen = [];
    for (let at = 0; at < shared.label.length; at += 1) {
      if (label >= 0 && shared.label[at] !== label) continue;
      if (answer >= 0 && own.answer[at] !== answer) continue;
      if (blocked >= 0 && own.blocked[at] !== blocked) continue;
      const right = own.answer[at] === shared.label[at];
      const taught = shared.teacher_answer[at] === shared.label[at];
      if (!fitsAnswers(taught, right, own.answer[at] === shared.teacher_answer[at])) continue;
      if (before && state.flip) {
        const was = before.answer[at] === shared.label[at];
        if (!fitsFlip(was, right, before.answer[at] === own.answer[at], own.margin[at] - before.margin[at])) continue;
      }
      chosen.push(at);
    }
    return chosen;
  };
  const sort = (chosen, state, shared, own) => {
    const [, column] = SORTS[state.sort];
    const values = own[column] ?? shared[column];
    const sign = state.order === "down" ? -1 : 1;
    return chosen.sort((a, b) => sign * (values[a] - values[b]) || a - b);
  };
  // The name of an example, and back.
  let places = null;
  const idOf = (shared, at) => (shared.id ? shared.id[at] : String(shared.row[at]));
  const placeOf = (shared, id) => {
    if (!places) {
      places = new Map();
      for (let at = shared.label.length - 1; at >= 0; at -= 1) places.set(idOf(shared, at), at);
    }
    return places.get(id);
  };
  return { ANSWERS, FLIPS, SORTS, choose, sort, idOf, placeOf };
})();
