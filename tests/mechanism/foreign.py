"""Checkpoints as other code bases write them: plain torch on the digits, with names and an order of their own."""

import torch
from torch import nn
from torch.nn import functional

from tpkd.data.loading import load_dataset

STUDENT_MAP = {"backbone.stem": "layers.0", "classifier": "fc"}
TEACHER_MAP = {"net.0": "layers.0", "net.2": "fc"}
ROAD = f"""\
output: mine
data: {{name: digits}}
views: {{scale: 16}}
student: {{model: "builtin:mlp", options: {{input_size: 64, hidden: [80]}}, weight_map: {STUDENT_MAP}}}
teacher:
  model: builtin:mlp
  options: {{input_size: 64, hidden: [40]}}
  weights: teacher.pt
  weight_map: {TEACHER_MAP}
optimizer: {{name: sgd, learning_rate: 0.05}}
epochs: 20
"""


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(64, 80)

    def forward(self, x):
        return functional.relu(self.stem(x.flatten(1)))


class TheirStudent(nn.Module):
    """The head is registered first, so that parameters have another order than ours."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(80, 10)
        self.backbone = Backbone()

    def forward(self, x):
        return self.classifier(self.backbone(x))


class TheirTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))

    def forward(self, x):
        return self.net(x.flatten(1))


def digits(split, ids=None):
    """Images as that code base scales them, and labels."""
    whole = load_dataset("digits", split)
    place = {int(sample): position for position, sample in enumerate(whole.ids)}
    positions = range(len(whole)) if ids is None else [place[int(sample)] for sample in ids]
    return torch.from_numpy(whole.inputs[positions]).float() / 16, torch.from_numpy(whole.labels[positions])


def train_there(directory):
    """Train their teacher and student with their own loop; keeps the student after epochs 8 and 20."""
    torch.manual_seed(7)
    images, labels = digits("train")
    teacher, student = TheirTeacher(), nn.DataParallel(TheirStudent())
    for network, epochs, kept in ((teacher, 4, ()), (student, 20, (8, 20))):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(1, epochs + 1):
            for rows in torch.randperm(len(images)).split(64):
                optimizer.zero_grad()
                functional.cross_entropy(network(images[rows]), labels[rows]).backward()
                optimizer.step()
            if epoch in kept:
                state = {"epoch": epoch, "state_dict": network.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, directory / f"ce{epoch}.pth")
    torch.save(teacher.state_dict(), directory / "teacher.pt")
    return teacher.eval()


def load_there(path):
    student = nn.DataParallel(TheirStudent())
    student.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
    return student.module.eval()
