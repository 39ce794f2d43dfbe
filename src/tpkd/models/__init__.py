"""Models by name, and one face for all of them: logits, features, and the classifier between them."""

from tpkd.models.classifier import Classifier, Inputs, ModelOutput, extract_features
from tpkd.models.encoder import TextClassifier, masked_mean
from tpkd.models.heads import fit_probe, random_head
from tpkd.models.mlp import MLP
from tpkd.models.registry import build_model, check_model, encoder_for
from tpkd.models.resnet import CifarResNet
from tpkd.models.source import model_source
from tpkd.models.tokens import HashedWords, PretrainedTokenizer, TextEncoding
from tpkd.models.vision import TimmClassifier
from tpkd.models.weights import load_weights, weights_fingerprint

__all__ = [
    "MLP",
    "CifarResNet",
    "Classifier",
    "HashedWords",
    "Inputs",
    "ModelOutput",
    "PretrainedTokenizer",
    "TextClassifier",
    "TextEncoding",
    "TimmClassifier",
    "build_model",
    "check_model",
    "encoder_for",
    "extract_features",
    "fit_probe",
    "load_weights",
    "masked_mean",
    "model_source",
    "random_head",
    "weights_fingerprint",
]
