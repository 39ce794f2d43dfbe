"""What a graph says in a process that has no library but onnxruntime."""

import numpy as np

from student.fresh import run_fresh

RUN_GRAPH = """
import json, sys, numpy, onnxruntime
assert not {"torch", "transformers", "timm"} & set(sys.modules)
session = onnxruntime.InferenceSession(sys.argv[1] + "/student.onnx", providers=["CPUExecutionProvider"])
arrays = numpy.load(sys.argv[2])
metadata = session.get_modelmeta().custom_metadata_map
(logits,) = session.run(["logits"], {each.name: arrays[each.name] for each in session.get_inputs()})
print(json.dumps({"logits": logits.tolist(), "class_names": json.loads(metadata["class_names"]),
                  "preprocessing": json.loads(metadata["preprocessing"])}))
"""


def graph_says(out, inputs, folder):
    """Logits, class names and preprocessing of an exported student for preprocessed inputs."""
    arrays = inputs if isinstance(inputs, dict) else {"inputs": inputs}
    np.savez(folder / "inputs.npz", **{name: value.numpy() for name, value in arrays.items()})
    return run_fresh(RUN_GRAPH, out, folder / "inputs.npz")
