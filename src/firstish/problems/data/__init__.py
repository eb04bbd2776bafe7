"""Data sets: where they are looked for, how they are read, and what is refused."""

from firstish.problems.data.catalogue import CATALOGUE, status
from firstish.problems.data.cifar import load_cifar10
from firstish.problems.data.digits import load_digits
from firstish.problems.data.errors import DataError, MissingDataError
from firstish.problems.data.files import DataSet, File, FileStatus, Form
from firstish.problems.data.folders import folders
from firstish.problems.data.idx import load_fashion_mnist
from firstish.problems.data.imagenette import load_imagenette
from firstish.problems.data.images import LabelledImages
from firstish.problems.data.libsvm import SparseData, load_libsvm

__all__ = [
    "CATALOGUE",
    "DataError",
    "DataSet",
    "File",
    "FileStatus",
    "Form",
    "LabelledImages",
    "MissingDataError",
    "SparseData",
    "folders",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_imagenette",
    "load_libsvm",
    "status",
]
