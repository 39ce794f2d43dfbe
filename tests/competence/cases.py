"""What a diagnosis of arrays says about a teacher."""

import numpy as np

from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files


def diagnosed(directory, z, zt, y):
    for name, array in (("student", z), ("teacher", zt), ("labels", y)):
        np.save(directory / f"{name}.npy", array)
    files = (directory / f"{name}.npy" for name in ("student", "teacher", "labels"))
    student, teacher, labels = files
    return diagnose_files(open_inputs([student], teacher, labels)).students[0].competence
