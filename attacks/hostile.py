"""Hostile files: made to do harm in the ways a format allows, or a valid file with some damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache

from PIL import Image

MEGABYTE = 1 << 20
HUGE = (1 << 31, (1 << 32) - 1, 1 << 33, 1 << 40, 1 << 62)


def damaged(valid: bytes, other: bytes, rng: random.Random) -> bytes:
    """The file with one to four changes: bits, bytes, pieces lost, doubled, moved or foreign."""
    data = bytearray(valid)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 4, 16, 512)))
        piece = bytes(data[at:end])
        changes: tuple[Callable[[], bytes], ...] = (
            lambda piece=piece: bytes(b ^ (1 << rng.randrange(8)) for b in piece[:1]) + piece[1:],
            lambda piece=piece: rng.randbytes(len(piece)),
            lambda piece=piece: rng.choice((b"\0", b"\xff")) * len(piece),
            lambda: b"",
            lambda piece=piece: piece + piece,
            lambda piece=piece: piece + rng.randbytes(4),
            lambda piece=piece: piece[::-1],
            lambda at=at, end=end: other[at:end],
            lambda: struct.pack(rng.choice("<>") + "I", rng.choice((0, 1, 1 << 31, 0xFFFFFFFF))),
        )
        data[at:end] = rng.choice(changes)()
    return bytes(data)


def made(name: str, valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Files for the reader of that name: what was done, and the bytes."""
    yield from _any_format(valid, rng)
    for word, maker in _SPECIAL.items():
        if word in name:
            yield from maker(valid, rng)


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return open, ("pickled", "w")  # an audit hook would see it


def _xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


@cache
def _zeros(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(bytes(10 * MEGABYTE))


def _any_format(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    yield "one byte", rng.randbytes(1)
    yield "a part", valid[: rng.randrange(len(valid))]
    yield "random bytes", rng.randbytes(len(valid))
    yield "zeros", bytes(len(valid))
    yield "twice", valid + valid
    yield "something behind it", valid + rng.randbytes(rng.randint(1, 2000))
    yield "zeros behind it", valid + bytes(rng.randint(1, 2000))
    yield "something before it", rng.randbytes(rng.randint(1, 200)) + valid
    yield "a page instead", b"<html><title>404</title></html>"
    yield "a pickle", pickle.dumps(_Command())
    for pack in (gzip.compress, bz2.compress, _xz):
        yield "packed once more", pack(valid)
        yield "packed twice more", gzip.compress(pack(valid))
        yield "a small pack of 500 MB", pack(valid) + _zeros(pack) * 50
        yield "ten thousand empty packs", pack(b"") * 10_000 + pack(valid)


# Text -----------------------------------------------------------------------------------------

_LINES = (
    "1 1:1_0",
    "1_0 1:1",
    "1 0:1",
    "1 7:1",
    "1 -1:1",
    "1 +1:1",
    "1 1.0:1",
    "1 2:1 1:1",
    "1 1:1 1:1",
    "1 1:nan",
    "1 1:-inf",
    "nan 1:1",
    "1 1:1e999",
    "1 1:0x1",
    "1 1:١",
    "١ 1:1",
    "1 ١:1",
    "1 1:",
    "1 :1",
    "1 1",
    "1 1::1",
    "1 1:1\0",
    "1 1:1\x85",
    "3 1:1",
    "1\u00a01:1",
    "\ufeff1 1:1",
    "1 " + "1:1 " * 20_000,
    "1 " + "9" * 5_000 + ":1",
    "1 " + "9" * 25 + ":1",
    "1 1:" + "9" * 50_000,
    "1 1:." + "0" * 50_000 + "1",
    "1" * 50_000,
    "#" * 3_000,
    "\t \x0b\x0c\r",
    "",
)


def _text(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    lines = valid.split(b"\n")
    for line in _LINES:
        at = rng.randrange(len(lines))
        for text in (line.encode(), line.encode("utf-16"), line.encode("latin-1", "replace")):
            yield f"a line {line[:20]!r}", b"\n".join([*lines[:at], text, *lines[at + 1 :]])
            yield f"one more line {line[:20]!r}", b"\n".join([*lines[:at], text, *lines[at:]])
    yield "other line ends", valid.replace(b"\n", b"\r\n")
    yield "ends that are none", valid.replace(b"\n", b"\r")
    yield "empty lines", valid + b"\n" * 100_000


def _bzip2(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    text = bz2.decompress(valid)
    at = rng.randrange(1, len(text))
    yield "two streams", bz2.compress(text[:at]) + bz2.compress(text[at:])
    yield (
        "a bad second stream",
        bz2.compress(text[:at]) + damaged(bz2.compress(text[at:]), b"", rng),
    )
    for what, other in _text(text, rng):
        if other != text:
            yield f"packed: {what}", bz2.compress(other + b"\n3")  # an unknown label at the end


# IDX ------------------------------------------------------------------------------------------


def _idx_before_gzip(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    body = valid[16:]
    for shape in (
        (rng.choice(HUGE) & 0xFFFFFFFF, 28, 28),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0, 28, 28),
        (28, 28, 4),
        (4, 784, 1),
        (4, 28, 0),
    ):
        yield f"shape {shape}", valid[:4] + struct.pack(">3I", *shape) + body
    for dimensions in (0, 1, 2, 4, 255):
        yield "other dimensions", bytes((0, 0, 8, dimensions)) + valid[4:]
    for kind in (0, 9, 11, 12, 13, 14, 255):
        yield "another type", bytes((0, 0, kind, 3)) + valid[4:]


def _gzip(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    body = gzip.decompress(valid)
    at = rng.randrange(1, len(body))
    yield "two members", gzip.compress(body[:at]) + gzip.compress(body[at:])
    yield "a wrong length at the end", valid[:-4] + struct.pack("<I", rng.choice(HUGE) & 0xFFFFFFFF)
    yield "a wrong sum at the end", valid[:-8] + rng.randbytes(4) + valid[-4:]
    yield "a name without end", valid[:3] + b"\x08" + valid[4:10] + b"a" * 100_000
    yield "an extra field", valid[:3] + b"\x04" + valid[4:10] + b"\xff\xff" + valid[10:]


# Archives -------------------------------------------------------------------------------------


def _entry(name: str, size: int = 0, kind: bytes = b"0", **more: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def _pax(name: str, body: bytes, **records: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(body)
    info.pax_headers = {key.replace("_", "."): str(value) for key, value in records.items()}
    return info.tobuf(tarfile.PAX_FORMAT) + body + bytes(-len(body) % 512)


def _blocks(kind: bytes, body: bytes) -> bytes:
    return _entry("././@PaxHeader", len(body), kind) + body + bytes(-len(body) % 512)


def _tar_before_gzip(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(valid)) as archive:
        members = archive.getmembers()
        wanted = rng.choice([m for m in members if m.name.endswith(("bin", "JPEG"))])
        stream = archive.extractfile(wanted)
        assert stream is not None
        body, name = stream.read(), wanted.name
    whole = valid[: members[-1].offset_data + -(-members[-1].size // 512) * 512]
    for what, extra in _tar_extras(name, body, rng):
        yield f"first {what}", extra + whole + bytes(1024)
        yield f"last {what}", whole + extra + bytes(1024)
        yield f"only {what}", extra + bytes(1024)
    field = wanted.offset + 124
    for number in (
        b"-0000000001\0",
        b"0x1\0",
        b"1_0\0",
        b"99999999999\0",
        b"\xff" * 12,
        b"\0" * 12,
    ):
        yield "a wrong number", valid[:field] + number.ljust(12, b"\0") + valid[field + 12 :]
    yield "no end", whole
    yield "an end within a file", valid[: members[-1].offset_data + 10]
    yield "an end within a header", valid[: members[-1].offset + 100]


def _tar_extras(name: str, body: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Members that should not be there."""
    for kind in (b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", b"D", b"V", b"Z", b"\xff"):
        for target in ("/etc/passwd", "../../x", name):
            more = {"linkname": target, "devmajor": 1, "devminor": 5}
            yield f"type {kind!r} to {target}", _entry(name, 0, kind, **more)
        yield f"huge type {kind!r}", _entry(name, rng.choice(HUGE), kind)
    for kind in (b"x", b"g", b"X", b"L", b"K"):
        yield f"huge header {kind!r}", _entry("././@LongLink", rng.choice(HUGE), kind)
        yield f"digits in a header {kind!r}", _blocks(kind, b"1" * 20_000)
        yield f"zero in a header {kind!r}", _blocks(kind, b"0 a=b\n" * 20)
        yield f"header {kind!r} for nothing", _blocks(kind, b"30 path=" + name.encode() + b"\n")
    yield "a negative size", _entry(name, -rng.choice(HUGE))
    yield "its own name again", _entry(name, len(body)) + body + bytes(-len(body) % 512)
    for other in (f"/{name}", f"../{name}", f"./{name}", f"{name}\0x", f"{name}/", "a" * 200, ""):
        yield f"name {other[:40]!r}", _entry(other, 4) + b"evil".ljust(512, b"\0")
    for size in HUGE:
        holes = {"GNU_sparse_major": 1, "GNU_sparse_minor": 0, "GNU_sparse_realsize": size}
        yield "holes", _pax(name, b"0\n".ljust(512, b"\0"), GNU_sparse_name=name, **holes)
        yield "a size in a header", _pax(name, b"x", size=size)
    yield "a name in a header", _pax("harmless", b"evil", path=name)
    yield "another sum", _entry(name)[:148] + b"0000001\0" + _entry(name)[156:]


def _zip(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(valid)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield "compressed", _zipped([*files.items()], method)
        yield "a bomb", _zipped([*files.items(), ("x", bytes(20 * MEGABYTE))], method)
    image = next(iter(files))
    for name in (
        image,
        f"/{image}",
        f"../{image}",
        f"./{image}",
        f"{image}/",
        "a\\b",
        "é.JPEG",
        "",
    ):
        yield f"one more {name!r}", _zipped([*files.items(), (name, files[image])])
    for name in (f"{image[:-5]}\0.JPEG", f"{image}\0x", "a" * 60_000):
        yield f"renamed {name[:40]!r}", _zipped([(name, files[image]), *[*files.items()][1:]])
    yield (
        "a large image",
        _zipped([(image, files[image] + bytes(2 * MEGABYTE)), *files.items()][:4]),
    )
    directory, end = valid.index(b"PK\1\2"), valid.index(b"PK\5\6")
    for offset, length in (
        (8, 2),
        (10, 2),
        (16, 4),
        (20, 4),
        (24, 4),
        (28, 2),
        (30, 2),
        (38, 4),
        (42, 4),
    ):
        for value in (0, 1, 99, 0x7FFFFFFF, 0xFFFFFFFF, rng.getrandbits(32)):
            number = struct.pack("<I", value)[:length]
            yield "a changed directory", _put(valid, directory + offset, number)
            yield "a changed header", _put(valid, max(0, offset - 2), number)
    for offset in (8, 10, 12, 16, 20):
        yield "a changed end", _put(valid, end + offset, rng.randbytes(2))
        yield (
            "a largest end",
            _put(valid, end + offset, b"\xff\xff\xff\xff"[: 2 + 2 * (offset > 10)]),
        )


def _put(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


def _zipped(files: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in files:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method  # past the constructor, as it is
            archive.writestr(info, content)
    return stream.getvalue()


# Images ---------------------------------------------------------------------------------------


def _image(kind: str, size: tuple[int, int], mode: str = "RGB", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, kind, **options)
    return stream.getvalue()


def _jpeg(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    frame = valid.index(b"\xff\xc0")
    for size in ((65535, 65535), (65535, 1), (1, 65535), (0, 64), (64, 0), (63, 64), (3000, 3000)):
        yield f"a frame of {size}", _put(valid, frame + 5, struct.pack(">2H", *size))
    for count in (0, 2, 4, 255):
        yield f"{count} components", _put(valid, frame + 9, bytes((count,)))
    for marker in (0xC2, 0xC3, 0xC9, 0xD9, 0xDD, 0xE1, 0xE2, 0xFE):
        yield f"marker {marker:x}", _put(valid, frame, bytes((0xFF, marker)))
        segment = rng.randbytes(rng.randint(0, 300))
        head = struct.pack(">BBH", 0xFF, marker, len(segment) + 2)
        yield f"a segment {marker:x}", valid[:2] + head + segment + valid[2:]
    for tail in (b"Exif\0\0MM\0*" + b"\xff" * 60, b"MPF\0MM\0*" + b"\0\0\0\x08" + b"\xff" * 60):
        head = struct.pack(">BBH", 0xFF, 0xE1 + (tail[0] == ord("M")), len(tail) + 2)
        yield "broken EXIF or MPF", valid[:2] + head + tail + valid[2:]
    scan = _image("JPEG", (64, 64), progressive=True)
    start = scan.rindex(b"\xff\xda")
    yield "scans without end", scan[:start] + scan[start:-2] * 5_000 + scan[-2:]
    for mode in ("L", "CMYK"):
        yield f"an image in {mode}", _image("JPEG", (64, 64), mode)
    for kind in ("PNG", "GIF", "BMP", "TIFF", "WEBP", "ICO"):
        yield f"a {kind} image", _image(kind, (64, 64))
    yield "a PNG of 10,000 by 10,000", _image("PNG", (10_000, 10_000), "1")


def _webp(valid: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    for width, height in ((16383, 16383), (63, 0), (0, 63), (64, 63), (8191, 8191)):
        for alpha in (0, 1 << 28, 7 << 29):
            bits = struct.pack("<I", width | height << 14 | alpha)
            yield "a changed size", _put(valid, 21, bits)
    for size in (0, 1, 10, 0x7FFFFFFF, 0xFFFFFFFF):
        yield "a changed length", _put(valid, 4, struct.pack("<I", size))
        yield "a changed length of the chunk", _put(valid, 16, struct.pack("<I", size))
    canvas = struct.pack("<4sIIHBHB", b"VP8X", 10, 2, 16382, 0, 16382, 0)
    frames = struct.pack("<4sI6x", b"ANIM", 6)
    yield "a large canvas", valid[:12] + canvas + valid[12:]
    yield "a large animation", valid[:12] + canvas + frames + valid[12:]
    yield "an image with loss", _image("WEBP", (64, 64), quality=50)
    yield "an image with alpha", _image("WEBP", (64, 64), "RGBA", lossless=True)
    more = {"save_all": True, "append_images": [Image.new("RGB", (64, 64), "red")]}
    yield "an animation", _image("WEBP", (64, 64), lossless=True, **more)


_SPECIAL: dict[str, Callable[[bytes, random.Random], Iterator[tuple[str, bytes]]]] = {
    "LIBSVM text": _text,
    "bzip2": _bzip2,
    "IDX images before gzip": _idx_before_gzip,
    ", gzip": _gzip,
    ".gz": _gzip,
    "tgz": _gzip,
    "tar before gzip": _tar_before_gzip,
    "zip": lambda valid, rng: _zip(valid, rng) if valid[:2] == b"PK" else iter(()),
    "JPEG": _jpeg,
    "WebP": _webp,
}
