"""What can this teacher still teach this student? Two files of logits and one of labels, no training.

The command does the same: tpkd diagnose student.npy --teacher teacher.npy --labels labels.npy --html page.html
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from tpkd import diagnose

# Any two classifiers of the same classes; here the logits of a teacher that returns probabilities are their logarithms.
digits = load_digits()
images, labels = digits.data / 16, digits.target
student = LogisticRegression(C=100.0, max_iter=1000).fit(images[:1000], labels[:1000])
teacher = MLPClassifier(100, max_iter=500, random_state=0).fit(images[:1000], labels[:1000])
np.save("student.npy", student.decision_function(images[1000:]))
np.save("teacher.npy", np.log(teacher.predict_proba(images[1000:])))
np.save("labels.npy", labels[1000:])

logits, teacher_logits, targets = (
    torch.from_numpy(np.load(f"{name}.npy")) for name in ("student", "teacher", "labels")
)
state = diagnose(logits, teacher_logits, targets)
print(f"full imitation is blocked on {state.blocked.double().mean():.1%} of {len(targets)} images")
print(f"what is left to learn among the wrong classes: {state.conditional_loss.mean():.3f} nats an image")
print(f"the next protected step keeps at least {state.retention.min():.1%} of the conditional descent")

blocked = torch.nonzero(state.blocked).squeeze(1)
most = blocked[state.conditional_loss[blocked].argsort(descending=True)[:5]]
print("blocked images with most left to learn:", most.tolist())
