"""A file of zstd frames -> what is packed in it. Where it breaks off, EOFError; where it is damaged, OSError."""

import io
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

PACKED = 1 << 12  # bytes taken at once: what they unpack to is held in memory, and lost where they are damaged
WINDOW = 1 << 31  # the widest there is, of `zstd --long=31`; by itself the library stops at an eighth of it


class ZstdFile(io.RawIOBase):
    """The unpacked bytes, one frame after the other."""

    def __init__(self, packed: IO[bytes]) -> None:
        from zstandard import ZstdDecompressor

        self.parts = _parts(packed, ZstdDecompressor(max_window_size=WINDOW))
        self.rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest and (part := next(self.parts, None)) is not None:
            self.rest = memoryview(part)
        count = min(len(buffer), len(self.rest))
        buffer[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count


def _parts(packed: IO[bytes], decompressor: "ZstdDecompressor") -> Iterator[bytes]:
    from zstandard import ZstdError

    frame = None
    while chunk := packed.read(PACKED):
        while chunk:
            frame = frame or decompressor.decompressobj()
            try:
                part = frame.decompress(chunk)
            except ZstdError as problem:
                raise OSError(str(problem)) from None
            yield part
            chunk = frame.unused_data
            frame = None if frame.eof else frame
    if frame:
        raise EOFError("the last frame has no end")
