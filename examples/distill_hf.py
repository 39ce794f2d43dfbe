"""A small network learns digits in Hugging Face's Trainer: plain_hf.py from labels, distill_hf.py with a teacher."""

import torch
from sklearn.datasets import load_digits
from tpkd.integrations.transformers import DistillationTrainer, MonitorCallback
from transformers import EvalPrediction, ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments


def build_model(width: int) -> ResNetForImageClassification:
    """A residual network for images of 8 x 8 points."""
    config = ResNetConfig(
        num_channels=1, embedding_size=width, hidden_sizes=[width], depths=[1], layer_type="basic", num_labels=10
    )
    return ResNetForImageClassification(config)


def accuracy(found: EvalPrediction) -> dict[str, float]:
    """The share of images whose class is right."""
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images / 8 - 1).float().unsqueeze(1)
samples = [{"pixel_values": image, "labels": label} for image, label in zip(images, digits.target, strict=True)]
train_set, test_set = samples[:1000], samples[1000:]
args = TrainingArguments(
    output_dir="hf-run",
    num_train_epochs=10,
    per_device_train_batch_size=50,
    learning_rate=1e-2,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)

teacher = build_model(width=32)
Trainer(teacher, args, train_dataset=train_set).train()
model = build_model(width=8)
trainer = DistillationTrainer(model, args, train_dataset=train_set, compute_metrics=accuracy, teacher=teacher)
trainer.add_callback(MonitorCallback())
trainer.train()
print(f"accuracy {trainer.evaluate(test_set)['eval_accuracy']:.3f}")
