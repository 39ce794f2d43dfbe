"""How good the answers of a network are: accuracy, confidence and their uncertainty over test samples."""
