"""A small timm network learns scikit-learn's digits: plain_timm.py from labels, distill_timm.py from a teacher too."""

import timm
import torch
from sklearn.datasets import load_digits
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.task import ClassificationTask, TrainingTask
from torch.utils.data import DataLoader, TensorDataset
from tpkd.integrations.timm import DistillationTask

EPOCHS = 5
SMOOTHING = 0.0  # --smoothing 0 in timm's script: the teacher says how the other classes relate


def train(task: TrainingTask, loader: DataLoader) -> None:
    """What timm's training script does, in short."""
    optimizer = create_optimizer_v2(task.get_trainable_module(), opt="adamw", lr=3e-3)
    scheduler = CosineLRScheduler(optimizer, t_initial=EPOCHS)
    for epoch in range(EPOCHS):
        task.train()
        for inputs, target in loader:
            result = task(inputs, target)
            optimizer.zero_grad()
            result["loss"].backward()
            optimizer.step()
        scheduler.step(epoch + 1)


def accuracy(model: torch.nn.Module, dataset: TensorDataset) -> float:
    """The share of images whose class is right."""
    inputs, target = dataset.tensors
    with torch.no_grad():
        return (model.eval()(inputs).argmax(-1) == target).float().mean().item()


torch.manual_seed(0)
digits = load_digits()
images = torch.nn.functional.interpolate(torch.tensor(digits.images / 8 - 1).float().unsqueeze(1), size=32)
dataset = TensorDataset(images.expand(-1, 3, -1, -1), torch.tensor(digits.target))
train_set, test_set = TensorDataset(*dataset[:1000]), TensorDataset(*dataset[1000:])
loader = DataLoader(train_set, batch_size=50, shuffle=True)

criterion = LabelSmoothingCrossEntropy(SMOOTHING)
model = timm.create_model("test_efficientnet_gn", num_classes=10)
teacher = timm.create_model("test_resnet", num_classes=10)
train(ClassificationTask(teacher, criterion), loader)
train(DistillationTask(model, teacher, "tpkd", criterion=criterion), loader)
print(f"accuracy {accuracy(model, test_set):.3f}")
