"""Pieces of a message's content."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text in a message.

    Args:
        text: The text.
    """

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image in a message, by address or by its bytes.

    Args:
        media_type: The MIME type, such as `image/png`.
        url: Where the image is.
        data: The image itself.

    Raises:
        ValueError: Not exactly one of `url` and `data` is given.
    """

    media_type: str
    url: str | None = None
    data: bytes | None = None

    def __post_init__(self) -> None:
        """Refuse an image with no place, or with two."""
        if (self.url is None) == (self.data is None):
            raise ValueError(
                "An `ImagePart` takes either `url` or `data`, and exactly one of them."
            )


MessagePart = TextPart | ImagePart
Content = str | tuple[MessagePart, ...]
