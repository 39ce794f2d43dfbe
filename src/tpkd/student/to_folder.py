"""The format `safetensors`: weights and recipe in one folder, which `load_student` opens."""

import shutil
from dataclasses import replace
from pathlib import Path

from tpkd.files import reading, write_file
from tpkd.student.loading import Student, load_student
from tpkd.student.network import FILES_NAME, encoder_source, read_encoder_config, save_tokenizer, tokenizer_source
from tpkd.student.recipe import RECIPE_NAME, StudentRecipe
from tpkd.training.directory import STUDENT_NAME


def write_folder(student: Student, folder: Path) -> list[str]:
    """Write `student.safetensors`, `config.json` and, for networks of transformers, their files without weights.

    Returns:
        Notes for the model card.
    """
    with reading(student.folder / STUDENT_NAME):
        shutil.copyfile(student.folder / STUDENT_NAME, folder / STUDENT_NAME)
    write_file(folder / RECIPE_NAME, _copy_files(student, folder).to_json())
    load_student(folder)  # refuses weights that do not belong to the recipe
    return ["Load it with `tpkd.load_student(FOLDER)`; `.predict(inputs)` takes raw inputs."]


def _copy_files(student: Student, folder: Path) -> StudentRecipe:
    """Copy what transformers needs, and return the recipe that refers to the copy."""
    recipe = student.recipe
    source = tokenizer_source(recipe, student.folder) if recipe.kind == "text" else None
    if source is None:
        return recipe
    files = folder / FILES_NAME
    files.mkdir()
    save_tokenizer(source, files, max_length=recipe.max_length)
    options = {key: value for key, value in recipe.options.items() if key != "tokenizer"}
    if not recipe.model.startswith("hf:"):
        return replace(recipe, options={**options, "tokenizer": FILES_NAME})
    read_encoder_config(encoder_source(recipe, student.folder)).save_pretrained(files)
    return replace(recipe, model=f"hf:{FILES_NAME}", options=options)
