"""Small files in the original formats, written without firstish."""

import functools
import gzip
import io
import struct
import tarfile
import zipfile

import numpy as np
from PIL import Image


def write_idx(path, array, magic=None):
    """A gzip-compressed IDX file of bytes."""
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) if magic is None else magic
    dims = struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + dims + array.astype(np.uint8).tobytes()))
    return path


def cifar_batch(count, seed=0):
    """Random images (n, 3, 32, 32), labels, and the bytes of the binary version."""
    rng = np.random.RandomState(seed)
    images = rng.randint(0, 256, (count, 3, 32, 32)).astype(np.uint8)
    labels = rng.randint(0, 10, count).astype(np.uint8)
    content = b"".join(bytes([b]) + a.tobytes() for a, b in zip(images, labels, strict=True))
    return images, labels, content


def write_sheet(path, images):
    """A lossless WebP sheet of a square number of images."""
    side = round(len(images) ** 0.5)
    sheet = np.zeros((side * 32, side * 32, 3), np.uint8)
    for k, image in enumerate(images):
        i, j = divmod(k, side)
        sheet[32 * i : 32 * i + 32, 32 * j : 32 * j + 32] = image.transpose(1, 2, 0)
    Image.fromarray(sheet).save(path, "WEBP", lossless=True)
    return path


@functools.cache
def mushrooms():
    """LIBSVM text with the shape of mushrooms: 8,124 rows of 21 ones among 112 features."""
    rng = np.random.RandomState(0)
    labels = np.repeat([1, 2], [3916, 4208])
    lines = []
    for label in labels:
        columns = np.sort(rng.choice(112, 21, replace=False)) + 1
        lines.append(f"{label} " + " ".join(f"{c}:1" for c in columns))
    return "\n".join(lines) + "\n"


def jpeg(colour, size=(64, 64), mode="RGB"):
    """A JPEG file of one colour."""
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def picture_files():
    """Names and contents of a tiny Imagenette: three training and one validation image."""
    return {
        "train/n01440764/b.JPEG": jpeg((200, 10, 10)),
        "train/n01440764/a.JPEG": jpeg(90, mode="L"),
        "train/n03888257/c.JPEG": jpeg((10, 10, 200), size=(160, 213)),
        "val/n03888257/d.JPEG": jpeg((10, 200, 10)),
    }


COUNTS = {"n01440764": 2, "n03888257": 1}


def write_zip(path, files):
    """The files in a zip file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tar(path, files, root=""):
    """The files in a tar.gz archive, below `root`."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(root + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
