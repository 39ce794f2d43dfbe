"""What can be said of a teacher that kept only its top classes? Bounds, and which numbers they are.

The command does the same: tpkd diagnose student.npy --teacher top.npz --labels labels.npy --html page.html
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from tpkd import diagnose
from tpkd.geometry import TopK

digits = load_digits()
images, labels = digits.data / 16, digits.target
student = LogisticRegression(C=100.0, max_iter=1000).fit(images[:1000], labels[:1000])
teacher = MLPClassifier(100, max_iter=500, random_state=0).fit(images[:1000], labels[:1000])
logits = torch.from_numpy(student.decision_function(images[1000:]))
log_probs = torch.from_numpy(np.log(teacher.predict_proba(images[1000:])))
targets = torch.from_numpy(labels[1000:])

# Three of ten classes, the label's own, and the total of all others: what an interface of a large model may give.
kept, label = log_probs.topk(3), targets[:, None]
rest = log_probs.scatter(1, kept.indices, -torch.inf).scatter(1, label, -torch.inf).logsumexp(1)
top_k = TopK(kept.values, kept.indices, log_probs.gather(1, label)[:, 0], rest)
np.savez("top.npz", **{name: getattr(top_k, name) for name in top_k.__dataclass_fields__})
np.save("student.npy", logits)
np.save("labels.npy", targets)

whole, cut = diagnose(logits, log_probs, targets), diagnose(logits, top_k, targets)
signs = {"exact": "=", "lower": ">=", "upper": "<=", "completed": "~"}
for name, value in cut.summary()["all"].items():
    print(f"{name:18} {signs[cut.bounds[name]]:2} {value:.4f}   whole teacher: {whole.summary()['all'][name]:.4f}")
