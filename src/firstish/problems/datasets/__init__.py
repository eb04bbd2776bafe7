"""Data sets: where they are searched for, how they are read, and what is refused."""

from firstish.problems.datasets.errors import DataError, MissingDataError
from firstish.problems.datasets.files import DataSet, File, FileStatus, Form
from firstish.problems.datasets.folders import folders
from firstish.problems.datasets.readers.cifar import load_cifar10
from firstish.problems.datasets.readers.digits import load_digits
from firstish.problems.datasets.readers.idx import load_fashion_mnist
from firstish.problems.datasets.readers.imagenette import load_imagenette
from firstish.problems.datasets.readers.images import LabelledImages
from firstish.problems.datasets.readers.libsvm import SparseData, load_libsvm
from firstish.problems.datasets.registry import CATALOGUE, status

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
