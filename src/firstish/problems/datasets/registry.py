"""Every data set: its files, their sizes and checksums, its publisher, and how to get it.

A checksum here is of bytes that were held when it was written down, or is stated by a publisher
(named beside it).
"""

from __future__ import annotations

from pathlib import Path

from firstish.interface.extras import install
from firstish.interface.keywords import did_you_mean
from firstish.problems.datasets.files import DataSet, File, FileStatus, Form, Part, inspect

# Apache MXNet publishes these for the official files. The compact sheets, written back in the
# layout of the official files, have them too.
CIFAR10_BATCHES = (
    "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628",
)
_CIFAR10_SHEETS = (
    (17_040_942, "md5:6b421e5a6a8526ab567243c7a6bc2947"),
    (17_085_808, "md5:55f78b09e98e41e1942d2e5d8fe59c4b"),
    (17_091_114, "md5:3b73af8ea5a73f409813a3bdf7f69231"),
    (17_061_958, "md5:86f1aa1f7dd93f480d929a5a7eb254ff"),
    (17_048_054, "md5:b679a467598b2b73e5f871afe2973b41"),
)
_CIFAR10 = DataSet(
    name="cifar10",
    title="CIFAR-10, the 50,000 training images",
    publisher="Alex Krizhevsky, University of Toronto",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="no formal licence; cite the 2009 report",
    how="Get the binary version (not the Python one), and leave it packed.",
    forms=(
        Form(
            name="archive",
            title="the binary version as it is published",
            files=(
                File(
                    path="cifar-10-binary.tar.gz",
                    size=170_052_171,  # as TensorFlow's tutorial prints it
                    checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",  # stated on its page
                    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                ),
            ),
        ),
        Form(
            name="sheets",
            title="five lossless WebP sheets and the labels",
            files=(
                *(
                    File(path=f"CIFAR10/data_batch_{k}.webp", size=size, checksum=checksum)
                    for k, (size, checksum) in enumerate(_CIFAR10_SHEETS, start=1)
                ),
                File(
                    path="CIFAR10/labels.txt",
                    size=60_006,
                    checksum="md5:f2cbd04f990a697e5000be2413d8a6a0",
                ),
            ),
        ),
    ),
)

_FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"


def _idx(name: str, size: int, md5: str) -> File:
    return File(
        path=f"FashionMNIST/raw/{name}",
        size=size,
        checksum=f"md5:{md5}",  # stated on its page
        url=f"{_FASHION_URL}/{name}",
    )


_FASHION = DataSet(
    name="fashion-mnist",
    title="FashionMNIST, 60,000 training and 10,000 test images",
    publisher="Zalando Research (Xiao, Rasul, Vollgraf)",
    page="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    how="Get the gzip files, and leave them packed.",
    forms=(
        Form(
            name="idx",
            title="gzip-compressed IDX files, training part",
            files=(
                _idx("train-images-idx3-ubyte.gz", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                _idx("train-labels-idx1-ubyte.gz", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            ),
        ),
        Form(
            name="idx",
            title="gzip-compressed IDX files, test part",
            files=(
                _idx("t10k-images-idx3-ubyte.gz", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
                _idx("t10k-labels-idx1-ubyte.gz", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
            parts=("test",),
        ),
    ),
)

_IMAGENETTE = DataSet(
    name="imagenette",
    title="Imagenette version 2, 9,469 training and 3,925 validation images",
    publisher="fast.ai (Howard)",
    page="https://github.com/fastai/imagenette",
    licence="ImageNet images: for non-commercial research and education; do not pass them on",
    how="Get the 160 px version, and leave it packed.",
    forms=(
        Form(
            name="zip",
            title="the images reduced to 64x64, one zip file",
            files=(
                File(
                    path="imagenette64/imagenette2-64.zip",
                    size=30_481_098,
                    checksum="md5:58d82f0e9ff8d2a04480076e9e39ed52",
                ),
            ),
            parts=("train", "test"),
        ),
        Form(
            name="archive",
            title="the 160 px version as it is published",
            files=(
                File(
                    path="imagenette2-160.tgz",
                    size=99_003_388,  # stated by fast.ai, in the fastai library
                    checksum="md5:e793b78cc4c9e9a4ccc0c1155377a412",  # stated by torchvision
                    url="https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
                ),
            ),
            parts=("train", "test"),
        ),
    ),
)


def _libsvm(name: str, source: str, *forms: Form) -> DataSet:
    return DataSet(
        name=name,
        title=f"LIBSVM {name}",
        publisher="the LIBSVM data collection (Chang, Lin)",
        page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
        licence=f"the collection states none; the source is {source}",
        how="Download the file; do not unpack or edit it.",
        forms=forms,
    )


_ROOM = 8  # times the size, for other line ends and more digits


def _svm(name: str, size: int, md5: str) -> Form:
    # Not exact: these copies had their line ends or numbers rewritten, so that the publisher's
    # own bytes may differ. The reader checks rows, features and labels instead.
    file = File(
        path=f"libsvm/{name}",
        size=size,
        checksum=f"md5:{md5}",
        exact=False,
        limit=_ROOM * size,
        url=f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/{name}",
    )
    title = "LIBSVM text, packed with bzip2" if name.endswith(".bz2") else "LIBSVM text"
    parts: tuple[Part, ...] = ("test",) if name.endswith(".t") else ("train",)
    return Form(name="libsvm", title=title, files=(file,), parts=parts)


_LIBSVM = (
    _libsvm(
        "mushrooms",
        "UCI Mushroom (CC BY 4.0)",
        _svm("mushrooms", 879_712, "2a52251de564d72e772b25211a84f5f8"),
    ),
    _libsvm(
        "phishing",
        "UCI Phishing Websites (CC BY 4.0)",
        _svm("phishing", 3_620_168, "1ae5141702089b4a9efe9989ceade7f8"),
    ),
    _libsvm(
        "a9a",
        "UCI Adult (CC BY 4.0), binarised by J. Platt",
        _svm("a9a", 2_329_875, "fb3596510d780aaf76a06dc721d49662"),
        _svm("a9a.t", 1_164_628, "f0bb16cf1ee3e80ff560e9d132ee647e"),
    ),
    _libsvm(
        "w8a",
        "J. Platt's SMO pages, which state no licence",
        _svm("w8a", 3_478_238, "05cdbfad8de0af3887c0e6f42fddc32b"),
    ),
    _libsvm(
        "ijcnn1",
        "the IJCNN 2001 challenge, which states no licence",
        _svm("ijcnn1.bz2", 1_395_175, "ccb639c7cca405cd3c88b97a8555c8a9"),
    ),
)

_DIGITS = DataSet(
    name="digits",
    title="Optical recognition of handwritten digits, 1,797 images of 8x8",
    publisher="UCI (Alpaydin, Kaynak), in scikit-learn",
    page="https://archive.ics.uci.edu/dataset/80",
    licence="CC BY 4.0",
    how=f"Comes with scikit-learn: {install('data')}",
)

CATALOGUE: dict[str, DataSet] = {
    d.name: d for d in (_DIGITS, *_LIBSVM, _CIFAR10, _FASHION, _IMAGENETTE)
}
"""The data sets by name."""


def get(name: str) -> DataSet:
    """The data set of that name."""
    if name not in CATALOGUE:
        meant = did_you_mean(name, CATALOGUE)
        raise ValueError(f"Unknown data set {name!r}.{meant} Use one of: {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]


def status(name: str, folder: Path) -> list[FileStatus]:
    """What is known of each file of a data set in a folder, form by form.

    Empty for a data set that needs no file. A data set is complete where the files of one form are.
    """
    return [inspect(file, folder) for form in get(name).forms for file in form.files]
