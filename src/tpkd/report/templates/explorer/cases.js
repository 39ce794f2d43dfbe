// A case in the form in which tpkd writes it down, and its numbers under the names that Python gives them. The page
// compares its presets with the numbers that tpkd computed for them; tests do the same with 1,000 random cases.
const tpkdCases = (() => {
  "use strict";
  const { exp, frontier, imitationDirection, insertTarget, logTransferPath, margins, projectSafeCone } = tpkdTheory;

  function numbersOf(given) {
    const { student_logits: z, teacher_logits: zt, labels, beta, temperature, position, budget } = given;
    const state = tpkdTheory.diagnose(z, zt, labels, { beta, temperature });
    const { pair, step } = state;
    const best = frontier(pair, budget);
    return {
      blocked: state.blocked,
      confidence: state.confidence,
      teacher_confidence: state.teacherConfidence,
      label_loss: state.labelLoss,
      imitation_loss: state.imitationLoss,
      conditional_loss: state.conditionalLoss,
      transfer_cost: state.transferCost,
      min_confidence: state.minConfidence,
      compensation: state.compensation,
      retention: state.retention,
      update_cosine: state.updateCosine,
      label: step.label,
      conditional: step.conditional,
      safe: step.safe,
      update: step.update,
      clipped_mass: step.clippedMass,
      pure_conditional: step.pureConditional,
      margins: margins(z, labels),
      strict_blocking_log_odds: tpkdTheory.strictBlockingLogOdds(pair),
      safe_imitation: projectSafeCone(imitationDirection(z, zt), labels),
      transfer_endpoint: exp(tpkdTheory.transferEndpoint(pair)),
      transfer_path: exp(logTransferPath(pair, position)),
      frontier_value: best.value,
      frontier_conditional: insertTarget(exp(best.logConditional), 0, labels),
    };
  }

  // The first name whose numbers differ by more than rounding; undefined where all agree. Null stands for no number.
  function firstDifference(found, expected, tolerance = 1e-9) {
    const differs = (a, b, scale) => {
      if (typeof b === "boolean") return a !== b;
      if (b === null) return Number.isFinite(a);
      return !(Math.abs(a - b) <= tolerance * Math.max(scale, 1e-5));
    };
    const size = (values) => Math.max(...values.map((value) => Math.abs(value ?? 0)));
    return Object.keys(expected).find((name) => {
      const [a, b] = [found[name], expected[name]];
      return Array.isArray(b) ? b.some((value, j) => differs(a[j], value, size(b))) : differs(a, b, Math.abs(b));
    });
  }

  return { firstDifference, numbersOf };
})();
